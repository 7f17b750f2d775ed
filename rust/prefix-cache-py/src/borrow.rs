//! Python buffers as slices, without copying where the item is 32 bits wide.
//!
//! The one place with `unsafe`. A slice lives only while this thread is attached to the
//! interpreter and calls nothing of Python's, so no Python code can change or free its memory.

#![expect(unsafe_code, reason = "reading a Python buffer in place needs it")]

use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;

use crate::errors::InvalidInputError;

/// Stands for an id no 32-bit row can hold: it matches nothing and `insert` refuses it.
const UNFIT: u32 = u32::MAX;

/// A checked, one-dimensional, C-contiguous buffer of integers.
pub(crate) struct Ids {
    buffer: PyUntypedBuffer,
    wide: bool,
}

impl Ids {
    /// Exports the buffer of `object`; u32, i32 or i64 items in native order.
    pub(crate) fn read(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Self> {
        const NEED: &str = "need a C-contiguous, one-dimensional buffer of u32, i32 or i64";
        let buffer = PyUntypedBuffer::get(object).map_err(|_| {
            let kind = object.get_type();
            InvalidInputError::new_err(format!("{what} is not a buffer: got {kind}, {NEED}"))
        })?;
        require_layout(&buffer, what, NEED)?;
        let wide = match (kind(&buffer), buffer.item_size()) {
            (b'i' | b'l' | b'I' | b'L', 4) => false,
            (b'l' | b'q', 8) => true,
            _ => {
                let format = buffer.format().to_string_lossy().into_owned();
                return Err(InvalidInputError::new_err(format!(
                    "{what} has a wrong type: got format {format}, {NEED}"
                )));
            }
        };
        Ok(Self { buffer, wide })
    }

    /// Items in the buffer.
    pub(crate) fn len(&self) -> usize {
        self.buffer.item_count()
    }

    /// The first `n` items. 32-bit items are read in place, a negative one as a number above
    /// `MAX_ID`; 64-bit ones are narrowed into `scratch`, those that do not fit becoming `UNFIT`.
    pub(crate) fn first<'a>(
        &'a self,
        n: usize,
        scratch: &'a mut Vec<u32>,
        _attached: Python<'a>,
    ) -> &'a [u32] {
        debug_assert!(n <= self.len());
        let at = self.buffer.buf_ptr();
        if n == 0 {
            return &[];
        }
        if self.wide {
            // SAFETY: as below, with items of 8 bytes.
            let wide = unsafe { std::slice::from_raw_parts(at.cast::<i64>(), n) };
            if scratch.len() < n {
                scratch.resize(n, 0);
            }
            let narrowed = &mut scratch[..n];
            for (to, &id) in narrowed.iter_mut().zip(wide) {
                *to = narrow(id);
            }
            return narrowed;
        }
        // SAFETY: the exporter keeps this memory valid until the buffer is released, which
        // `self` outlives; it holds at least n aligned items of 4 bytes (checked in `read`); and
        // nothing writes to it while this thread stays attached and calls no Python code.
        unsafe { std::slice::from_raw_parts(at.cast::<u32>(), n) }
    }
}

/// A checked, writable, one-dimensional, C-contiguous buffer of i32.
pub(crate) struct Row(PyUntypedBuffer);

impl Row {
    /// Exports the buffer of `object` for writing.
    pub(crate) fn write(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        const NEED: &str = "need a writable, C-contiguous, one-dimensional buffer of int32";
        let buffer = PyUntypedBuffer::get(object).map_err(|_| {
            let kind = object.get_type();
            InvalidInputError::new_err(format!("out is not a buffer: got {kind}, {NEED}"))
        })?;
        require_layout(&buffer, "out", NEED)?;
        if buffer.readonly() {
            return Err(InvalidInputError::new_err(format!(
                "out is read-only: {NEED}"
            )));
        }
        if buffer.item_size() != 4 || !matches!(kind(&buffer), b'i' | b'l') {
            let format = buffer.format().to_string_lossy().into_owned();
            return Err(InvalidInputError::new_err(format!(
                "out has a wrong type: got format {format}, {NEED}"
            )));
        }
        Ok(Self(buffer))
    }

    /// Items in the buffer.
    pub(crate) fn len(&self) -> usize {
        self.0.item_count()
    }

    /// The items, to be written. Page ids are below 2^31, so they read the same as i32.
    pub(crate) fn words<'a>(&'a mut self, _attached: Python<'a>) -> &'a mut [u32] {
        let n = self.len();
        if n == 0 {
            return &mut [];
        }
        // SAFETY: as in `Ids::first`; the exporter allows writing (checked in `write`), and a
        // call takes one row only, so no other slice of ours covers this memory.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast::<u32>(), n) }
    }
}

/// Refuses other layouts, and memory that is not aligned to its items.
fn require_layout(buffer: &PyUntypedBuffer, what: &str, need: &str) -> PyResult<()> {
    let dimensions = buffer.dimensions();
    let aligned = buffer.buf_ptr().addr() % buffer.item_size().max(1) == 0;
    if dimensions == 1 && buffer.is_c_contiguous() && (aligned || buffer.item_count() == 0) {
        return Ok(());
    }
    Err(InvalidInputError::new_err(format!(
        "{what} has a wrong layout: got {dimensions} dimensions{}, {need}",
        if aligned { "" } else { ", unaligned" }
    )))
}

/// The type letter of a native-order format, or 0.
fn kind(buffer: &PyUntypedBuffer) -> u8 {
    match *buffer.format().to_bytes() {
        [kind] | [b'@' | b'=', kind] => kind,
        [b'<', kind] if cfg!(target_endian = "little") => kind,
        _ => 0,
    }
}

#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the halves are looked at apart"
)]
#[expect(
    clippy::cast_sign_loss,
    reason = "a negative id has a high half of ones"
)]
fn narrow(id: i64) -> u32 {
    let (low, high) = (id as u32, (id >> 32) as u32);
    // Without a branch, so that the loop over a buffer is vectorised.
    low | (u32::from(high != 0) * UNFIT)
}

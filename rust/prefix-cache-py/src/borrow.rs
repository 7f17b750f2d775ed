//! Python buffers as slices, without copying.
//!
//! The one place with `unsafe`. A slice lives only while this thread is attached to the
//! interpreter and calls nothing of Python's, so no Python code can change or free its memory.

#![expect(unsafe_code, reason = "reading a Python buffer in place needs it")]

use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;

use crate::errors::InvalidInputError;

/// What a buffer holds, where it lies.
#[derive(Clone, Copy)]
pub(crate) enum Run<'a> {
    /// Items of u32 or i32; a negative one reads as a number above `MAX_ID`.
    Words(&'a [u32]),
    /// Items of i64.
    Wide(&'a [i64]),
}

/// Evaluates an expression with `$ids` as the slice of a [`Run`], whichever type it has.
macro_rules! with_ids {
    ($run:expr, $ids:ident => $use:expr) => {
        match $run {
            $crate::borrow::Run::Words($ids) => $use,
            $crate::borrow::Run::Wide($ids) => $use,
        }
    };
}
pub(crate) use with_ids;

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

    /// The first `n` items, read in place.
    pub(crate) fn first<'a>(&'a self, n: usize, _attached: Python<'a>) -> Run<'a> {
        debug_assert!(n <= self.len());
        let at = self.buffer.buf_ptr();
        if n == 0 {
            return Run::Words(&[]);
        }
        // SAFETY, both: the exporter keeps this memory valid until the buffer is released, which
        // `self` outlives; it holds at least n aligned items of this size (checked in `read`);
        // and nothing writes to it while this thread stays attached and calls no Python code.
        if self.wide {
            return Run::Wide(unsafe { std::slice::from_raw_parts(at.cast::<i64>(), n) });
        }
        Run::Words(unsafe { std::slice::from_raw_parts(at.cast::<u32>(), n) })
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

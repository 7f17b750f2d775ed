//! Events as tuples that begin with the name routers know them by.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use rampway_prefix_cache::Event;

/// (`BlockStored`, blocks, parent, tokens, block size, namespace), (`BlockRemoved`, blocks) or
/// (`AllBlocksCleared`,).
pub(crate) fn tuple(
    py: Python<'_>,
    event: Event,
    page_size: usize,
) -> PyResult<Bound<'_, PyTuple>> {
    match event {
        Event::Stored {
            namespace,
            parent,
            blocks,
            tokens,
        } => {
            let namespace = PyBytes::new(py, &namespace);
            let told = ("BlockStored", blocks, parent, tokens, page_size, namespace);
            told.into_pyobject(py)
        }
        Event::Removed { blocks } => ("BlockRemoved", blocks).into_pyobject(py),
        Event::Cleared => ("AllBlocksCleared",).into_pyobject(py),
    }
}

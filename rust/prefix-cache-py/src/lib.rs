//! The prefix cache for Python: buffers and exceptions in and out, every decision in the core.

mod borrow;
mod cache;
mod errors;
mod events;

use pyo3::prelude::*;

/// The extension module `rampway_prefix_cache._native`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<cache::PyPrefixCache>()?;
    module.add_class::<cache::PyStats>()?;
    errors::register(module)
}

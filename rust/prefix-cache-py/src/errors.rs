//! The exceptions, and which one each error of the core becomes.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use rampway_prefix_cache::Error;

create_exception!(
    rampway_prefix_cache,
    CacheError,
    PyException,
    "The caller broke the contract; the cache is unchanged and goes on working."
);
create_exception!(
    rampway_prefix_cache,
    StaleHandleError,
    CacheError,
    "The handle was released before, or never came from this cache."
);
create_exception!(
    rampway_prefix_cache,
    PageOwnershipError,
    CacheError,
    "A page was given that the caller does not own, or one page twice."
);
create_exception!(
    rampway_prefix_cache,
    InvalidInputError,
    CacheError,
    "A buffer, a size or a token is out of range: wrong type, too short, negative."
);
create_exception!(
    rampway_prefix_cache,
    CorruptCacheError,
    CacheError,
    "`check` found a broken invariant: a bug in the cache, not in its caller."
);

/// The exception for an error of the core.
pub(crate) fn raise(error: &Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::StaleHandle { .. } => StaleHandleError::new_err(text),
        Error::NotOwned { .. } | Error::RepeatedPage { .. } => PageOwnershipError::new_err(text),
        Error::Corrupt(_) => CorruptCacheError::new_err(text),
        _ => InvalidInputError::new_err(text),
    }
}

/// Adds the exception classes to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("CacheError", py.get_type::<CacheError>())?;
    module.add("StaleHandleError", py.get_type::<StaleHandleError>())?;
    module.add("PageOwnershipError", py.get_type::<PageOwnershipError>())?;
    module.add("InvalidInputError", py.get_type::<InvalidInputError>())?;
    module.add("CorruptCacheError", py.get_type::<CorruptCacheError>())
}

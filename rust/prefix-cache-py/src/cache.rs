//! The class `PrefixCache`: one method for each of the core's, with the same name.

use std::borrow::Cow;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyTuple};
use rampway_prefix_cache::{Match, Policy, PrefixCache, TokenId};

use crate::borrow::{Ids, Row, Run, with_ids};
use crate::errors::{InvalidInputError, StaleHandleError, raise};
use crate::events;

/// Page counts now, and counters since the cache was made.
#[pyclass(frozen, get_all, name = "Stats", module = "rampway_prefix_cache")]
pub(crate) struct PyStats {
    total: usize,
    free: usize,
    evictable: usize,
    protected: usize,
    owned: usize,
    deferred: usize,
    reserved: usize,
    nodes: usize,
    handles: usize,
    pins: usize,
    pinned_pages: usize,
    lookups: u64,
    queried_tokens: u64,
    matched_tokens: u64,
    inserted_pages: u64,
    evicted_pages: u64,
}

/// Radix tree over token pages together with the allocator of those pages.
///
/// Methods hold the interpreter lock: none takes longer than what it touches.
#[pyclass(frozen, name = "PrefixCache", module = "rampway_prefix_cache")]
pub(crate) struct PyPrefixCache(Mutex<PrefixCache>);

#[pymethods]
impl PyPrefixCache {
    #[new]
    #[pyo3(signature = (num_pages, page_size = 16, policy = "lru"))]
    fn new(num_pages: i64, page_size: i64, policy: &str) -> PyResult<Self> {
        let cache = PrefixCache::with_policy(
            count("num_pages", num_pages)?,
            count("page_size", page_size)?,
            policy_of(policy)?,
        )
        .map_err(|error| raise(&error))?;
        Ok(Self(Mutex::new(cache)))
    }

    /// Pages in all, the reserved page 0 included.
    #[getter]
    fn num_pages(&self) -> usize {
        self.0.lock().num_pages()
    }

    /// Tokens in a page.
    #[getter]
    fn page_size(&self) -> usize {
        self.0.lock().page_size()
    }

    /// Lock the longest cached prefix of `tokens[:limit]`; return (handle, matched tokens).
    #[pyo3(signature = (namespace, tokens, limit = None))]
    fn match_lock(
        &self,
        namespace: &Bound<'_, PyBytes>,
        tokens: &Bound<'_, PyAny>,
        limit: Option<i64>,
    ) -> PyResult<(u64, usize)> {
        let py = tokens.py();
        let ids = Ids::read(tokens, "tokens")?;
        let n = cut(ids.len(), limit)?;
        let namespace = namespace.as_bytes();
        let mut cache = self.0.lock();
        let Match {
            handle,
            matched_tokens,
        } = with_ids!(ids.first(n, py), tokens => cache.match_lock(namespace, tokens));
        Ok((handle, matched_tokens))
    }

    /// `match_lock` for each (namespace, tokens, limit); on an error none is locked.
    fn match_lock_many<'py>(&self, requests: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        type Request<'py> = (Bound<'py, PyBytes>, Bound<'py, PyAny>, Option<i64>);
        let py = requests.py();
        let requests: Vec<Request<'py>> = requests.extract()?;
        let mut ready = Vec::with_capacity(requests.len());
        for (namespace, tokens, limit) in &requests {
            let ids = Ids::read(tokens, "tokens")?;
            let n = cut(ids.len(), *limit)?;
            ready.push((namespace, ids, n));
        }
        let mut cache = self.0.lock();
        let mut found = Vec::with_capacity(ready.len());
        for (namespace, ids, n) in ready {
            let namespace = namespace.as_bytes();
            let locked = with_ids!(ids.first(n, py), tokens => cache.match_lock(namespace, tokens));
            found.push((locked.handle, locked.matched_tokens));
        }
        drop(cache);
        PyList::new(py, found)
    }

    /// Return how many tokens `match_lock` would match, changing nothing.
    #[pyo3(signature = (namespace, tokens, limit = None))]
    fn peek(
        &self,
        namespace: &Bound<'_, PyBytes>,
        tokens: &Bound<'_, PyAny>,
        limit: Option<i64>,
    ) -> PyResult<usize> {
        let py = tokens.py();
        let ids = Ids::read(tokens, "tokens")?;
        let n = cut(ids.len(), limit)?;
        let namespace = namespace.as_bytes();
        let cache = self.0.lock();
        Ok(with_ids!(ids.first(n, py), tokens => cache.peek(namespace, tokens)))
    }

    /// Write the pages the handle protects into `out[:n]` and return n.
    fn fill_pages(&self, handle: &Bound<'_, PyAny>, out: &Bound<'_, PyAny>) -> PyResult<usize> {
        let handle = handle_of(handle)?;
        let mut row = Row::write(out)?;
        let filled = self.0.lock().fill_pages(handle, row.words(out.py()));
        filled.map_err(|error| raise(&error))
    }

    /// Write `n` pages into `out[at:at + n]`, evicting if needed; False if there are too few.
    #[pyo3(signature = (n, out, at = 0))]
    fn alloc(&self, n: i64, out: &Bound<'_, PyAny>, at: i64) -> PyResult<bool> {
        let (n, at) = (count("n", n)?, count("at", at)?);
        let mut row = Row::write(out)?;
        let room = row.len().saturating_sub(at);
        let Some(out) = at
            .checked_add(n)
            .and_then(|end| row.words(out.py()).get_mut(at..end))
        else {
            return Err(InvalidInputError::new_err(format!(
                "out is too short: got room for {room} pages at {at}, need {n}"
            )));
        };
        Ok(self.0.lock().alloc(out))
    }

    /// Publish the full pages of `tokens[:limit]`; return (held, adopted, duplicates).
    #[pyo3(signature = (handle, tokens, pages, limit = None))]
    fn insert<'py>(
        &self,
        handle: &Bound<'py, PyAny>,
        tokens: &Bound<'py, PyAny>,
        pages: &Bound<'py, PyAny>,
        limit: Option<i64>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let py = tokens.py();
        let handle = handle_of(handle)?;
        let ids = Ids::read(tokens, "tokens")?;
        let n = cut(ids.len(), limit)?;
        let pages = Pages::read(pages)?;
        let pages = pages.all(py);
        let mut cache = self.0.lock();
        let done = with_ids!(ids.first(n, py), tokens => cache.insert(handle, tokens, &pages));
        drop(cache);
        let done = done.map_err(|error| raise(&error))?;
        (done.held, done.adopted, done.duplicates).into_pyobject(py)
    }

    /// Unlock what the handle protects, now or once the step `fence` has retired.
    #[pyo3(signature = (handle, fence = None))]
    fn release(&self, handle: &Bound<'_, PyAny>, fence: Option<i64>) -> PyResult<()> {
        let (handle, fence) = (handle_of(handle)?, step_of("fence", fence)?);
        let done = self.0.lock().release(handle, fence);
        done.map_err(|error| raise(&error))
    }

    /// `release` for each handle; all are checked before the first is released.
    #[pyo3(signature = (handles, fence = None))]
    fn release_many(&self, handles: &Bound<'_, PyAny>, fence: Option<i64>) -> PyResult<()> {
        let handles = handles
            .try_iter()?
            .map(|handle| handle_of(&handle?))
            .collect::<PyResult<Vec<u64>>>()?;
        let fence = step_of("fence", fence)?;
        let done = self.0.lock().release_many(&handles, fence);
        done.map_err(|error| raise(&error))
    }

    /// Give back pages the caller owns; with `fence` they are reused only after `retire`.
    #[pyo3(signature = (pages, fence = None))]
    fn free(&self, pages: &Bound<'_, PyAny>, fence: Option<i64>) -> PyResult<()> {
        let py = pages.py();
        let pages = Pages::read(pages)?;
        let fence = step_of("fence", fence)?;
        let done = self.0.lock().free(&pages.all(py), fence);
        done.map_err(|error| raise(&error))
    }

    /// Carry out every release and free with fence <= step; return pages made free.
    fn retire(&self, step: i64) -> PyResult<usize> {
        let step = step_of("step", Some(step))?.unwrap_or_default();
        Ok(self.0.lock().retire(step))
    }

    /// Raise the priority (0 ... 63) of what the handle protects and later inserts.
    fn prioritize(&self, handle: &Bound<'_, PyAny>, priority: i64) -> PyResult<()> {
        let handle = handle_of(handle)?;
        let priority = u8::try_from(count("priority", priority)?).unwrap_or(u8::MAX);
        let done = self.0.lock().prioritize(handle, priority);
        done.map_err(|error| raise(&error))
    }

    /// Keep the cached prefix of `tokens[:limit]` until `deadline`; return (pin, tokens) or None.
    #[pyo3(signature = (namespace, tokens, deadline, limit = None))]
    fn pin(
        &self,
        namespace: &Bound<'_, PyBytes>,
        tokens: &Bound<'_, PyAny>,
        deadline: i64,
        limit: Option<i64>,
    ) -> PyResult<Option<(u64, usize)>> {
        let py = tokens.py();
        let ids = Ids::read(tokens, "tokens")?;
        let n = cut(ids.len(), limit)?;
        let deadline = count("deadline", deadline)? as u64;
        let namespace = namespace.as_bytes();
        let mut cache = self.0.lock();
        let pin = with_ids!(ids.first(n, py), tokens => cache.pin(namespace, tokens, deadline));
        drop(cache);
        let pin = pin.map_err(|error| raise(&error))?;
        Ok(pin.map(|pin| (pin.id, pin.tokens)))
    }

    /// End a pin; False when it has ended already.
    fn unpin(&self, pin: i64) -> bool {
        u64::try_from(pin).is_ok_and(|pin| self.0.lock().unpin(pin))
    }

    /// End every pin whose deadline is `now` or earlier; return how many.
    fn expire_pins(&self, now: i64) -> PyResult<usize> {
        let now = count("now", now)? as u64;
        Ok(self.0.lock().expire_pins(now))
    }

    /// Set how many pages all pins together may keep (a quarter of all pages at first).
    fn set_pin_quota(&self, pages: i64) -> PyResult<()> {
        let pages = count("pages", pages)?;
        self.0.lock().set_pin_quota(pages);
        Ok(())
    }

    /// Let the namespace keep at most `pages`, or any number; return how many pages went for it.
    #[pyo3(signature = (namespace, pages))]
    fn set_quota(&self, namespace: &Bound<'_, PyBytes>, pages: Option<i64>) -> PyResult<usize> {
        let pages = pages.map(|pages| count("pages", pages)).transpose()?;
        Ok(self.0.lock().set_quota(namespace.as_bytes(), pages))
    }

    /// Return (pages kept, pages allowed), or None for a namespace without a quota.
    fn quota(&self, namespace: &Bound<'_, PyBytes>) -> Option<(usize, usize)> {
        let quota = self.0.lock().quota(namespace.as_bytes())?;
        Some((quota.pages, quota.limit))
    }

    /// Record events, at most `capacity` until drained; the first ones tell what is cached now.
    fn enable_events(&self, capacity: i64) -> PyResult<()> {
        let capacity = count("capacity", capacity)?;
        self.0.lock().enable_events(capacity);
        Ok(())
    }

    /// Stop recording events and forget those that were not drained.
    fn disable_events(&self) {
        self.0.lock().disable_events();
    }

    /// Return (events since the last call, how many were lost); see the stub for their shape.
    fn drain_events<'py>(&self, py: Python<'py>) -> PyResult<(Vec<Bound<'py, PyTuple>>, u64)> {
        let (page_size, drained) = {
            let mut cache = self.0.lock();
            (cache.page_size(), cache.drain_events())
        };
        let events = drained.events.into_iter();
        let told = events.map(|event| events::tuple(py, event, page_size));
        Ok((told.collect::<PyResult<_>>()?, drained.lost))
    }

    /// Free up to `n` evictable pages, least recently used first; return how many.
    fn evict(&self, n: i64) -> PyResult<usize> {
        let n = count("n", n)?;
        Ok(self.0.lock().evict(n))
    }

    /// Drop every cached page that no handle protects; return how many.
    fn clear(&self) -> usize {
        self.0.lock().clear()
    }

    /// Return free + evictable pages.
    fn available(&self) -> usize {
        self.0.lock().available()
    }

    /// Return page counts and counters; O(1).
    fn stats(&self) -> PyStats {
        let stats = self.0.lock().stats();
        PyStats {
            total: stats.total,
            free: stats.free,
            evictable: stats.evictable,
            protected: stats.protected,
            owned: stats.owned,
            deferred: stats.deferred,
            reserved: stats.reserved,
            nodes: stats.nodes,
            handles: stats.handles,
            pins: stats.pins,
            pinned_pages: stats.pinned_pages,
            lookups: stats.lookups,
            queried_tokens: stats.queried_tokens,
            matched_tokens: stats.matched_tokens,
            inserted_pages: stats.inserted_pages,
            evicted_pages: stats.evicted_pages,
        }
    }

    /// Recompute every invariant; raise `CorruptCacheError` at the first that is broken.
    fn check(&self) -> PyResult<()> {
        let checked = self.0.lock().check();
        checked.map_err(|error| raise(&error))
    }
}

/// Page ids to read: a buffer, or a sequence of ints.
enum Pages {
    Buffer(Ids),
    Copied(Vec<u32>),
}

impl Pages {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
            let ids: Vec<i64> = object.extract().map_err(|_| {
                InvalidInputError::new_err("pages are no page ids: need ints of 64 bits at most")
            })?;
            // An id that does not fit is no page: the core says so, and says which.
            let copied = ids.iter().map(|&id| u32::try_from(id).unwrap_or(u32::MAX));
            return Ok(Self::Copied(copied.collect()));
        }
        Ids::read(object, "pages").map(Self::Buffer)
    }

    fn all<'a>(&'a self, py: Python<'a>) -> Cow<'a, [u32]> {
        match self {
            Self::Buffer(ids) => match ids.first(ids.len(), py) {
                Run::Words(pages) => pages.into(),
                Run::Wide(pages) => pages.iter().map(|page| page.id()).collect(),
            },
            Self::Copied(pages) => pages.into(),
        }
    }
}

/// The eviction policy with this name.
fn policy_of(name: &str) -> PyResult<Policy> {
    match name {
        "lru" => Ok(Policy::Lru),
        "lfu" => Ok(Policy::Lfu),
        "slru" => Ok(Policy::Slru),
        "priority" => Ok(Policy::Priority),
        _ => Err(InvalidInputError::new_err(format!(
            "policy is unknown: got {name}, need lru, lfu, slru or priority"
        ))),
    }
}

/// Refuses a negative argument.
fn count(what: &str, value: i64) -> PyResult<usize> {
    usize::try_from(value).map_err(|_| {
        InvalidInputError::new_err(format!("{what} is negative: got {value}, need 0 or more"))
    })
}

/// The number of items before `limit`; a limit past the end is the end.
fn cut(len: usize, limit: Option<i64>) -> PyResult<usize> {
    limit.map_or(Ok(len), |limit| Ok(count("limit", limit)?.min(len)))
}

/// Refuses a negative step number.
fn step_of(what: &str, step: Option<i64>) -> PyResult<Option<u64>> {
    step.map(|step| {
        u64::try_from(step).map_err(|_| {
            InvalidInputError::new_err(format!(
                "{what} is negative: got {step}, need a step number"
            ))
        })
    })
    .transpose()
}

/// An int that is no 64-bit number is a handle that never was; anything else is a `TypeError`.
fn handle_of(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    object.extract().map_err(|error| {
        if !object.is_instance_of::<PyInt>() {
            return error;
        }
        StaleHandleError::new_err(format!(
            "handle is not live: got {object}, need one from match_lock, released only once"
        ))
    })
}

//! What a caller can do wrong, and the one thing the cache itself can.

use std::fmt;

use crate::{MAX_ID, Owner};

/// The result of a cache operation; after an error the cache is as it was before the call.
pub type Result<T> = std::result::Result<T, Error>;

/// A broken contract. Except for [`Error::Corrupt`] it is the caller's mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The handle was released before, or never came from this cache.
    StaleHandle {
        /// The handle as given.
        handle: u64,
    },
    /// A page was given that the caller does not own.
    NotOwned {
        /// The page as given.
        page: u32,
        /// Its owner; `None` when there is no such page.
        owner: Option<Owner>,
    },
    /// A page occurs twice in one call.
    RepeatedPage {
        /// The page as given.
        page: u32,
    },
    /// A slice of pages is shorter than the operation needs.
    TooShort {
        /// The length given.
        got: usize,
        /// The length needed.
        need: usize,
    },
    /// A token is larger than [`MAX_ID`].
    TokenOutOfRange {
        /// Its position in the tokens given.
        index: usize,
        /// The token.
        token: u32,
    },
    /// Pins would keep more pages than their quota.
    PinQuota {
        /// Pages the new pin would keep.
        need: usize,
        /// Pages the quota has left.
        left: usize,
    },
    /// The number of pages is not in `2..=MAX_ID`.
    NumPages {
        /// The number given.
        got: usize,
    },
    /// The page size is not a power of two in `1..=65536`.
    PageSize {
        /// The size given.
        got: usize,
    },
    /// `check` found a broken invariant: a bug in this crate.
    Corrupt(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StaleHandle { handle } => write!(
                f,
                "handle is not live: got {handle}, need one from match_lock, released only once"
            ),
            Self::NotOwned { page, owner } => {
                let owner = owner.map_or("no page", Owner::name);
                write!(
                    f,
                    "page {page} is not the caller's: got {owner}, need a page from alloc"
                )
            }
            Self::RepeatedPage { page } => {
                write!(f, "page {page} is given twice: need each page once")
            }
            Self::TooShort { got, need } => {
                write!(f, "pages are too few: got {got}, need {need}")
            }
            Self::TokenOutOfRange { index, token } => write!(
                f,
                "token {index} is out of range: got {token}, need 0 ... {MAX_ID}"
            ),
            Self::PinQuota { need, left } => write!(
                f,
                "pin is over the quota: got {need} pages to keep, need {left} or fewer"
            ),
            Self::NumPages { got } => write!(
                f,
                "num_pages is out of range: got {got}, need 2 ... {MAX_ID}"
            ),
            Self::PageSize { got } => write!(
                f,
                "page_size is no page size: got {got}, need a power of two <= 65536"
            ),
            Self::Corrupt(what) => write!(f, "cache is corrupt: {what}"),
        }
    }
}

impl std::error::Error for Error {}

//! The page allocator: who owns each page. Knows no tokens and no tree.

use crate::{Error, MAX_ID, Result};

/// Who a page belongs to: exactly one at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Nobody: `alloc` may hand it out.
    Free,
    /// The caller, after `alloc` and before `insert` or `free`.
    Caller,
    /// The tree: cached, evictable or protected.
    Tree,
    /// Freed by the caller behind a fence that has not retired.
    Deferred,
    /// Page 0, which pads block tables and is never handed out.
    Reserved,
}

impl Owner {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Caller => "caller",
            Self::Tree => "tree",
            Self::Deferred => "deferred",
            Self::Reserved => "reserved",
        }
    }
}

/// One word a page: the next free page while it is free, otherwise a code above `MAX_ID`.
type Word = u32;
const CALLER: Word = MAX_ID + 1;
const TREE: Word = MAX_ID + 2;
const DEFERRED: Word = MAX_ID + 3;
const RESERVED: Word = MAX_ID + 4;
/// A caller's page inside a call that is still checking its arguments.
const CLAIMED: Word = MAX_ID + 5;
/// Ends the free list; page 0 is never free.
const END: Word = 0;

/// Pages `1..n` on an intrusive stack of free ones. All operations are O(1) a page.
#[derive(Debug)]
pub(crate) struct PagePool {
    words: Vec<Word>,
    head: Word,
    pub(crate) free: usize,
    pub(crate) owned: usize,
    pub(crate) deferred: usize,
}

impl PagePool {
    pub(crate) fn new(num_pages: usize) -> Result<Self> {
        let last = u32::try_from(num_pages).unwrap_or(u32::MAX);
        if num_pages < 2 || last > MAX_ID {
            return Err(Error::NumPages { got: num_pages });
        }
        let mut words: Vec<Word> = (1..=last).collect();
        words[0] = RESERVED;
        words[num_pages - 1] = END;
        Ok(Self {
            words,
            head: 1,
            free: num_pages - 1,
            owned: 0,
            deferred: 0,
        })
    }

    pub(crate) fn total(&self) -> usize {
        self.words.len()
    }

    pub(crate) fn owner(&self, page: u32) -> Option<Owner> {
        Some(match *self.words.get(page as usize)? {
            CALLER | CLAIMED => Owner::Caller,
            TREE => Owner::Tree,
            DEFERRED => Owner::Deferred,
            RESERVED => Owner::Reserved,
            _ => Owner::Free,
        })
    }

    /// Fills `out` with free pages, last freed first. The pool must have that many.
    pub(crate) fn take(&mut self, out: &mut [u32]) {
        debug_assert!(out.len() <= self.free);
        for slot in out.iter_mut() {
            let page = self.head;
            self.head = std::mem::replace(&mut self.words[page as usize], CALLER);
            *slot = page;
        }
        self.free -= out.len();
        self.owned += out.len();
    }

    /// Marks `pages` so that each can be adopted, freed or returned once; on error marks none.
    pub(crate) fn claim(&mut self, pages: &[u32]) -> Result<()> {
        for (i, &page) in pages.iter().enumerate() {
            match self.words.get_mut(page as usize) {
                Some(word) if *word == CALLER => *word = CLAIMED,
                word => {
                    let repeated = word.is_some_and(|word| *word == CLAIMED);
                    self.unclaim(&pages[..i]);
                    return Err(if repeated {
                        Error::RepeatedPage { page }
                    } else {
                        let owner = self.owner(page);
                        Error::NotOwned { page, owner }
                    });
                }
            }
        }
        Ok(())
    }

    /// Leaves claimed pages with their caller.
    pub(crate) fn unclaim(&mut self, pages: &[u32]) {
        for &page in pages {
            self.words[page as usize] = CALLER;
        }
    }

    /// Passes claimed pages to the tree.
    pub(crate) fn adopt(&mut self, pages: &[u32]) {
        for &page in pages {
            self.words[page as usize] = TREE;
        }
        self.owned -= pages.len();
    }

    /// Frees claimed pages.
    pub(crate) fn give_back(&mut self, pages: &[u32]) {
        self.push_all(pages);
        self.owned -= pages.len();
    }

    /// Takes claimed pages out of use without freeing them yet.
    pub(crate) fn defer(&mut self, pages: &[u32]) {
        for &page in pages {
            self.words[page as usize] = DEFERRED;
        }
        self.owned -= pages.len();
        self.deferred += pages.len();
    }

    /// Frees deferred pages.
    pub(crate) fn settle(&mut self, pages: &[u32]) {
        self.push_all(pages);
        self.deferred -= pages.len();
    }

    /// Frees pages of the tree, the last one first.
    pub(crate) fn give_up(&mut self, pages: &[u32]) {
        for &page in pages.iter().rev() {
            self.push(page);
        }
    }

    fn push_all(&mut self, pages: &[u32]) {
        for &page in pages {
            self.push(page);
        }
    }

    fn push(&mut self, page: u32) {
        self.words[page as usize] = std::mem::replace(&mut self.head, page);
        self.free += 1;
    }

    /// Compares counts, free list and owners; `tree` has one flag a page.
    pub(crate) fn check(&self, tree: &[bool]) -> Result<()> {
        let mut listed = vec![false; self.words.len()];
        let (mut page, mut length) = (self.head, 0);
        while page != END {
            if std::mem::replace(&mut listed[page as usize], true) {
                return Err(Error::Corrupt(format!("page {page} is free twice")));
            }
            length += 1;
            page = self.words[page as usize];
            if page > MAX_ID {
                return Err(Error::Corrupt("free list leads to a page in use".into()));
            }
        }
        let (mut with_caller, mut deferred) = (0, 0);
        for (page, &word) in (0..).zip(&self.words) {
            let owner = self.owner(page);
            with_caller += usize::from(word == CALLER);
            deferred += usize::from(word == DEFERRED);
            let is_free = listed[page as usize];
            if word == CLAIMED
                || is_free != (owner == Some(Owner::Free))
                || tree[page as usize] != (owner == Some(Owner::Tree))
            {
                return Err(Error::Corrupt(format!(
                    "page {page} has another owner: got {owner:?}"
                )));
            }
        }
        let (got, need) = (
            (self.free, self.owned, self.deferred),
            (length, with_caller, deferred),
        );
        if got != need {
            return Err(Error::Corrupt(format!(
                "free, owned, deferred counts differ: got {got:?}, need {need:?}"
            )));
        }
        Ok(())
    }
}

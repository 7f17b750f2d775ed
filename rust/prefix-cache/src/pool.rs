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

/// One byte a page, so that the marks of a large pool stay in the processor's cache.
type Mark = u8;
const FREE: Mark = 0;
const CALLER: Mark = 1;
const TREE: Mark = 2;
const DEFERRED: Mark = 3;
const RESERVED: Mark = 4;

/// Pages `1..n` on a stack of free ones. All operations are O(1) a page, and none waits for the
/// memory of one page to find the next.
#[derive(Debug)]
pub(crate) struct PagePool {
    marks: Vec<Mark>,
    /// Free pages; the last one is handed out next.
    stack: Vec<u32>,
    pub(crate) owned: usize,
    pub(crate) deferred: usize,
}

impl PagePool {
    pub(crate) fn new(num_pages: usize) -> Result<Self> {
        let end = u32::try_from(num_pages).unwrap_or(u32::MAX);
        if num_pages < 2 || end > MAX_ID {
            return Err(Error::NumPages { got: num_pages });
        }
        let mut marks = vec![FREE; num_pages];
        marks[0] = RESERVED;
        Ok(Self {
            marks,
            stack: (1..end).rev().collect(),
            owned: 0,
            deferred: 0,
        })
    }

    pub(crate) fn total(&self) -> usize {
        self.marks.len()
    }

    /// Pages nobody owns.
    pub(crate) fn free(&self) -> usize {
        self.stack.len()
    }

    pub(crate) fn owner(&self, page: u32) -> Option<Owner> {
        Some(match *self.marks.get(page as usize)? {
            CALLER => Owner::Caller,
            TREE => Owner::Tree,
            DEFERRED => Owner::Deferred,
            RESERVED => Owner::Reserved,
            _ => Owner::Free,
        })
    }

    /// Fills `out` with free pages, last freed first. The pool must have that many.
    pub(crate) fn take(&mut self, out: &mut [u32]) {
        let kept = self.stack.len() - out.len();
        let taken = self.stack.drain(kept..).rev();
        for (slot, page) in out.iter_mut().zip(taken) {
            *slot = page;
            self.marks[page as usize] = CALLER;
        }
        self.owned += out.len();
    }

    /// Passes pages of the caller, each given once, to the tree; on error none.
    pub(crate) fn adopt(&mut self, pages: &[u32]) -> Result<()> {
        self.pass(pages, TREE)
    }

    /// Passes pages of the tree to the caller.
    pub(crate) fn hand_over(&mut self, pages: &[u32]) {
        self.mark(pages, CALLER);
        self.owned += pages.len();
    }

    /// Frees pages of the caller, each given once; on error none.
    pub(crate) fn give_back(&mut self, pages: &[u32]) -> Result<()> {
        self.pass(pages, FREE)?;
        self.stack.extend_from_slice(pages);
        Ok(())
    }

    /// Takes pages of the caller, each given once, out of use without freeing them yet; on error
    /// none.
    pub(crate) fn defer(&mut self, pages: &[u32]) -> Result<()> {
        self.pass(pages, DEFERRED)?;
        self.deferred += pages.len();
        Ok(())
    }

    /// Takes pages, each given once, from the caller for another owner: one look at each mark.
    fn pass(&mut self, pages: &[u32], to: Mark) -> Result<()> {
        for (i, &page) in pages.iter().enumerate() {
            match self.marks.get_mut(page as usize) {
                Some(mark) if *mark == CALLER => *mark = to,
                _ => {
                    self.mark(&pages[..i], CALLER);
                    return Err(self.refusal(page, &pages[..i]));
                }
            }
        }
        self.owned -= pages.len();
        Ok(())
    }

    /// Why `page`, which comes after those `before` it, is not passed on.
    #[cold]
    fn refusal(&self, page: u32, before: &[u32]) -> Error {
        if before.contains(&page) {
            return Error::RepeatedPage { page };
        }
        let owner = self.owner(page);
        Error::NotOwned { page, owner }
    }

    /// Frees deferred pages.
    pub(crate) fn settle(&mut self, pages: &[u32]) {
        self.stack.extend_from_slice(pages);
        self.mark(pages, FREE);
        self.deferred -= pages.len();
    }

    /// Frees pages of the tree, the last one first.
    pub(crate) fn give_up(&mut self, pages: &[u32]) {
        self.stack.extend(pages.iter().rev());
        self.mark(pages, FREE);
    }

    fn mark(&mut self, pages: &[u32], mark: Mark) {
        for &page in pages {
            self.marks[page as usize] = mark;
        }
    }

    /// Compares counts, free list and owners; `tree` has one flag a page.
    pub(crate) fn check(&self, tree: &[bool]) -> Result<()> {
        let mut listed = vec![false; self.marks.len()];
        for &page in &self.stack {
            if std::mem::replace(&mut listed[page as usize], true) {
                return Err(Error::Corrupt(format!("page {page} is free twice")));
            }
        }
        let (mut with_caller, mut deferred) = (0, 0);
        for (page, &mark) in (0..).zip(&self.marks) {
            let owner = self.owner(page);
            with_caller += usize::from(mark == CALLER);
            deferred += usize::from(mark == DEFERRED);
            let is_free = listed[page as usize];
            if is_free != (owner == Some(Owner::Free))
                || tree[page as usize] != (owner == Some(Owner::Tree))
            {
                return Err(Error::Corrupt(format!(
                    "page {page} has another owner: got {owner:?}"
                )));
            }
        }
        let (got, need) = ((self.owned, self.deferred), (with_caller, deferred));
        if got != need {
            return Err(Error::Corrupt(format!(
                "owned, deferred counts differ: got {got:?}, need {need:?}"
            )));
        }
        Ok(())
    }
}

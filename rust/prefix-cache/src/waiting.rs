//! What waits for an engine step that may still read or write its pages.

use std::collections::BTreeMap;

use crate::handles::Lock;

/// A release or a free behind a fence.
#[derive(Debug)]
pub(crate) enum Item {
    Unlock(Lock),
    Free(Vec<u32>),
}

impl Item {
    /// Deferred pages of this item.
    pub(crate) fn pages(&self) -> usize {
        match self {
            Self::Unlock(_) => 0,
            Self::Free(pages) => pages.len(),
        }
    }
}

/// Items by the step they wait for, in the order they came.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    by_fence: BTreeMap<u64, Vec<Item>>,
    retired: Option<u64>,
}

impl Waiting {
    /// The fence, if its step has not retired yet.
    pub(crate) fn ahead(&self, fence: Option<u64>) -> Option<u64> {
        fence.filter(|&fence| self.retired.is_none_or(|retired| fence > retired))
    }

    pub(crate) fn add(&mut self, fence: u64, item: Item) {
        self.by_fence.entry(fence).or_default().push(item);
    }

    /// Takes out everything that waited for `step` or an earlier one.
    pub(crate) fn due(&mut self, step: u64) -> Vec<Item> {
        self.retired = self.retired.max(Some(step));
        let mut due = Vec::new();
        while let Some(entry) = self.by_fence.first_entry() {
            if *entry.key() > step {
                break;
            }
            due.append(&mut entry.remove());
        }
        due
    }

    /// Everything that still waits.
    pub(crate) fn items(&self) -> impl Iterator<Item = &Item> {
        self.by_fence.values().flatten()
    }
}

//! Namespaces: byte strings that separate tenants, adapters and weights, compared exactly.

use hashbrown::HashTable;

use crate::slab::Slab;
use crate::table::{KeyHash, spread};

/// A namespace in use and the root of its tree.
#[derive(Debug, Default)]
pub(crate) struct Namespace {
    pub(crate) name: Box<[u8]>,
    pub(crate) root: u32,
    hash: KeyHash,
}

/// The namespaces that have a cached page or a live handle; others cost no memory.
#[derive(Debug)]
pub(crate) struct Namespaces {
    by_name: HashTable<u32>,
    slots: Slab<Namespace>,
}

impl Namespaces {
    pub(crate) const fn new() -> Self {
        Self {
            by_name: HashTable::new(),
            slots: Slab::new(),
        }
    }

    /// The root of `name`, if it is in use. O(length of the name).
    #[inline]
    pub(crate) fn find(&self, hash: KeyHash, name: &[u8]) -> Option<u32> {
        self.by_name
            .find(spread(hash), |&index| *self.slots[index].name == *name)
            .map(|&index| self.slots[index].root)
    }

    /// Adds a namespace that is not in use and returns its index.
    pub(crate) fn add(&mut self, hash: KeyHash, name: &[u8], root: u32) -> u32 {
        let index = self.slots.add(Namespace {
            name: name.into(),
            root,
            hash,
        });
        let slots = &self.slots;
        self.by_name
            .insert_unique(spread(hash), index, |&other| spread(slots[other].hash));
        index
    }

    /// Forgets the namespace at `index`.
    pub(crate) fn remove(&mut self, index: u32) {
        let hash = spread(self.slots[index].hash);
        if let Ok(entry) = self.by_name.find_entry(hash, |&other| other == index) {
            entry.remove();
        }
        self.slots.remove(index);
    }

    /// The name of the namespace at `index`.
    pub(crate) fn name(&self, index: u32) -> &[u8] {
        &self.slots[index].name
    }

    /// All namespaces in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.by_name.iter().map(|&index| &self.slots[index])
    }
}

//! Handles: receipts for a lock, valid once. A stale one is an error, never another's lock.

use crate::{Error, Result};

/// What a handle protects: the path from a namespace's root down to the end of `node`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) node: u32,
    /// Pages from the root to the end of `node`.
    pub(crate) held: u32,
    /// What is inserted through the handle gets this priority.
    pub(crate) priority: u8,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Odd while live, so that 0 is never a valid handle.
    generation: u32,
    lock: Lock,
}

/// Live locks by handle; a handle is `generation << 32 | slot`.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    slots: Vec<Slot>,
    free: Vec<u32>,
    live: usize,
}

impl Handles {
    /// O(1).
    pub(crate) fn add(&mut self, lock: Lock) -> u64 {
        self.live += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            let index = u32::try_from(self.slots.len()).expect("fewer handles than 2^32");
            self.slots.push(Slot {
                generation: 0,
                lock,
            });
            index
        });
        let slot = &mut self.slots[index as usize];
        slot.generation += 1;
        slot.lock = lock;
        u64::from(slot.generation) << 32 | u64::from(index)
    }

    /// O(1).
    pub(crate) fn get(&self, handle: u64) -> Result<Lock> {
        self.slot(handle).map(|index| self.slots[index].lock)
    }

    /// Changes what a live handle protects.
    pub(crate) fn set(&mut self, handle: u64, lock: Lock) -> Result<()> {
        let index = self.slot(handle)?;
        self.slots[index].lock = lock;
        Ok(())
    }

    /// Ends a handle. Its slot is reused with the next generation, or never after the last.
    pub(crate) fn remove(&mut self, handle: u64) -> Result<Lock> {
        let index = self.slot(handle)?;
        let slot = &mut self.slots[index];
        slot.generation = slot.generation.wrapping_add(1);
        if slot.generation != 0 {
            self.free.push(parts(handle).1);
        }
        self.live -= 1;
        Ok(self.slots[index].lock)
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// All live locks.
    pub(crate) fn locks(&self) -> impl Iterator<Item = Lock> {
        self.slots
            .iter()
            .filter(|slot| slot.generation % 2 == 1)
            .map(|slot| slot.lock)
    }

    fn slot(&self, handle: u64) -> Result<usize> {
        let (generation, index) = parts(handle);
        match self.slots.get(index as usize) {
            Some(slot) if slot.generation == generation && generation % 2 == 1 => {
                Ok(index as usize)
            }
            _ => Err(Error::StaleHandle { handle }),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves")]
const fn parts(handle: u64) -> (u32, u32) {
    ((handle >> 32) as u32, handle as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: Lock = Lock {
        node: 7,
        held: 3,
        priority: 0,
    };

    #[test]
    fn given_a_removed_handle_when_its_slot_is_reused_then_the_old_one_stays_stale() {
        let mut handles = Handles::default();
        let first = handles.add(LOCK);
        assert_eq!(handles.remove(first), Ok(LOCK));
        let second = handles.add(LOCK);
        assert_ne!(first, second);
        assert_eq!(
            handles.get(first),
            Err(Error::StaleHandle { handle: first })
        );
        assert_eq!(handles.get(second), Ok(LOCK));
    }

    #[test]
    fn given_the_last_generation_when_removed_then_the_slot_is_never_reused() {
        let mut handles = Handles::default();
        let first = handles.add(LOCK);
        handles.slots[0].generation = u32::MAX;
        let last = u64::from(u32::MAX) << 32;
        assert_eq!(handles.remove(last), Ok(LOCK));
        assert_ne!(handles.add(LOCK), first);
        assert_eq!(handles.slots.len(), 2);
        assert_eq!(handles.len(), 1);
    }
}

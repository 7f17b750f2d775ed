//! A vector whose items keep their index, with a list of free slots.

/// Items at stable `u32` indices; a freed slot holds `T::default()` until it is taken again.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T: Default> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self {
            items: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Stores `item` and returns its index.
    pub(crate) fn add(&mut self, item: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.items[index as usize] = item;
            return index;
        }
        let index = u32::try_from(self.items.len()).expect("there are fewer items than pages");
        if self.items.len() == self.items.capacity() {
            // A quarter: moving costs less than holding twice the memory for ever.
            self.items.reserve_exact(16.max(self.items.len() / 4));
        }
        self.items.push(item);
        index
    }

    /// Takes the item out and frees its slot.
    pub(crate) fn remove(&mut self, index: u32) -> T {
        self.free.push(index);
        std::mem::take(&mut self.items[index as usize])
    }

    /// The number of items stored.
    pub(crate) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// All slots, the free ones too, with their indices.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(self.items.iter())
    }

    /// The items stored, with their indices. O(slots).
    pub(crate) fn live(&self) -> impl Iterator<Item = (u32, &T)> {
        let mut dead = vec![false; self.items.len()];
        for &slot in &self.free {
            dead[slot as usize] = true;
        }
        self.slots()
            .filter(move |(index, _)| !dead[*index as usize])
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.items[index as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.items[index as usize]
    }
}

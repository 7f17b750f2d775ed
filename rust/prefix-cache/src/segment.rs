//! Where the tokens and page ids of nodes lie: contiguous runs that several nodes may share.
//!
//! All nodes of a segment form one chain of the tree, so the deepest is always evicted first and
//! a segment only ever loses its tail: a split needs no copy, a trim leaves no hole. Page ids and
//! tokens share one allocation, ids first: eviction, which finds all memory cold, reads only the
//! line with the ids and the allocator's header before them.

use std::ops::Range;

use crate::tree::to_u32;
use crate::{MAX_ID, TokenId};

/// The ids, then the tokens, of pages; the first `len` of each are in use.
#[derive(Debug, Default)]
pub(crate) struct Segment {
    /// `room` page ids, then tokens; a tail of either may be spare.
    words: Box<[u32]>,
    room: u32,
    len: u32,
}

impl Segment {
    /// `None` when a token is above `MAX_ID`: tokens are looked at as they are copied, because
    /// reading them, from memory most often, is what takes the time.
    pub(crate) fn new<T: TokenId>(tokens: &[T], pages: &[u32]) -> Option<Self> {
        let mut bits = 0;
        let ids = tokens.iter().map(|token| {
            let id = token.id();
            bits |= id;
            id
        });
        let mut words = Vec::with_capacity(tokens.len() + pages.len());
        words.extend_from_slice(pages);
        words.extend(ids);
        let len = to_u32(pages.len());
        (bits <= MAX_ID).then(|| Self {
            words: words.into_boxed_slice(),
            room: len,
            len,
        })
    }

    /// Pages in use.
    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    /// The tokens of these pages.
    #[inline]
    pub(crate) fn tokens(&self, pages: Range<usize>, page_size: usize) -> &[u32] {
        let first = self.room as usize;
        &self.words[first + pages.start * page_size..first + pages.end * page_size]
    }

    /// The ids of these pages.
    #[inline]
    pub(crate) fn pages(&self, pages: Range<usize>) -> &[u32] {
        &self.words[pages]
    }

    /// Copies what [`Self::lengthen`] will append; false when a token is above `MAX_ID`. Grows by
    /// a quarter, so that growing page by page stays linear.
    #[must_use]
    pub(crate) fn copy_behind<T: TokenId>(
        &mut self,
        tokens: &[T],
        pages: &[u32],
        page_size: usize,
    ) -> bool {
        let len = self.len() + pages.len();
        let room = self.room as usize;
        if len > room || room + len * page_size > self.words.len() {
            self.resize(len.max(self.len() + self.len() / 4), page_size);
        }
        self.words[self.len as usize..len].copy_from_slice(pages);
        let from = self.room as usize + self.len() * page_size;
        let new = &mut self.words[from..from + tokens.len()];
        let mut bits = 0;
        for (word, token) in new.iter_mut().zip(tokens) {
            *word = token.id();
            bits |= *word;
        }
        bits <= MAX_ID
    }

    /// Takes the next `pages` pages, copied before, into use.
    pub(crate) fn lengthen(&mut self, pages: usize) {
        self.len += to_u32(pages);
    }

    /// Keeps the first `pages` pages; gives memory back when a quarter is waste.
    pub(crate) fn truncate(&mut self, pages: usize, page_size: usize) {
        /// Words below which it is not worth the call.
        const WORTH_IT: usize = 128;
        self.len = to_u32(pages);
        let (room, used) = (self.room as usize, pages * page_size);
        let waste = self.words.len() - room - used;
        if waste <= WORTH_IT.max(self.words.len() / 4) {
            return;
        }
        if room - pages > WORTH_IT.max(used / 4) {
            return self.resize(pages, page_size);
        }
        // Spare ids stay: cutting off tokens alone needs no copy.
        let mut words = std::mem::take(&mut self.words).into_vec();
        words.truncate(room + used);
        self.words = words.into_boxed_slice();
    }

    /// Words allocated beyond what is in use.
    #[cfg(test)]
    fn waste(&self, page_size: usize) -> usize {
        self.words.len() - self.len() * (page_size + 1)
    }

    fn resize(&mut self, room: usize, page_size: usize) {
        let mut words = Vec::with_capacity(room * (page_size + 1));
        words.extend_from_slice(self.pages(0..self.len()));
        words.resize(room, 0);
        words.extend_from_slice(self.tokens(0..self.len(), page_size));
        words.resize(room * (page_size + 1), 0);
        self.words = words.into_boxed_slice();
        self.room = to_u32(room);
    }
}

#[cfg(test)]
mod tests {
    use super::Segment;

    const PAGE: usize = 16;

    #[test]
    fn given_a_segment_that_shrinks_page_by_page_then_half_of_it_or_a_few_words_are_waste_at_most()
    {
        let tokens: Vec<u32> = (0..4096).collect();
        let pages: Vec<u32> = (1000..1256).collect();
        let mut segment = Segment::new(&tokens, &pages).expect("tokens are in range");
        for left in (0..256).rev() {
            segment.truncate(left, PAGE);
            let words = segment.words.len();
            assert!(segment.waste(PAGE) <= 256.max(words / 2), "{left}");
            assert_eq!(segment.tokens(0..left, PAGE), &tokens[..left * PAGE]);
            assert_eq!(segment.pages(0..left), &pages[..left]);
        }
    }

    #[test]
    fn given_a_segment_that_grows_page_by_page_then_it_moves_rarely_and_wastes_at_most_a_fifth() {
        let mut segment = Segment::new(&[7_u32; PAGE], &[1]).expect("tokens are in range");
        let mut moves = 0;
        for page in 2..1000 {
            let before = segment.room;
            assert!(segment.copy_behind(&[page; PAGE], &[page], PAGE));
            segment.lengthen(1);
            moves += usize::from(segment.room != before);
            assert!(segment.waste(PAGE) <= segment.words.len() / 5);
            let last = segment.len() - 1;
            assert_eq!(segment.tokens(last..last + 1, PAGE), [page; PAGE]);
            assert_eq!(segment.pages(last..last + 1), [page]);
        }
        assert!(moves < 40, "{moves}");
    }
}

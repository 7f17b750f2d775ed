//! Where the tokens and page ids of nodes lie: contiguous runs that several nodes may share.
//!
//! All nodes of a segment form one chain of the tree, so the deepest is always evicted first and
//! a segment only ever loses its tail: a split needs no copy, a trim leaves no hole.

use crate::TokenId;

/// Tokens and pages of one run; `tokens.len() == pages.len() * page_size`.
#[derive(Debug, Default)]
pub(crate) struct Segment {
    pub(crate) tokens: Vec<u32>,
    pub(crate) pages: Vec<u32>,
}

impl Segment {
    pub(crate) fn new<T: TokenId>(tokens: &[T], pages: &[u32]) -> Self {
        Self {
            tokens: tokens.iter().map(|token| token.id()).collect(),
            pages: pages.to_vec(),
        }
    }

    /// Appends; grows by a quarter, so that growing page by page stays linear.
    pub(crate) fn extend<T: TokenId>(&mut self, tokens: &[T], pages: &[u32]) {
        make_room(&mut self.tokens, tokens.len());
        self.tokens.extend(tokens.iter().map(|token| token.id()));
        make_room(&mut self.pages, pages.len());
        self.pages.extend_from_slice(pages);
    }

    /// Keeps the first `pages` pages; gives memory back when a quarter is waste.
    pub(crate) fn truncate(&mut self, pages: usize, page_size: usize) {
        shorten(&mut self.tokens, pages * page_size);
        shorten(&mut self.pages, pages);
    }
}

fn make_room(items: &mut Vec<u32>, more: usize) {
    if items.capacity() - items.len() < more {
        items.reserve_exact(more.max(items.len() / 4));
    }
}

fn shorten(items: &mut Vec<u32>, len: usize) {
    /// Below this many words the allocator would round up to what is there already.
    const WORTH_IT: usize = 64;
    items.truncate(len);
    let waste = items.capacity() - len;
    if waste > WORTH_IT.max(items.capacity() / 4) {
        items.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::Segment;

    #[test]
    fn given_a_segment_that_shrinks_page_by_page_then_at_most_a_quarter_or_a_few_words_are_waste() {
        let mut segment = Segment::new(&[7_u32; 4096], &[1; 256]);
        for pages in (0..256).rev() {
            segment.truncate(pages, 16);
            for items in [&segment.tokens, &segment.pages] {
                assert!(items.capacity() - items.len() <= 64.max(items.capacity() / 4));
            }
        }
    }

    #[test]
    fn given_a_segment_that_grows_page_by_page_then_it_moves_rarely_and_wastes_at_most_a_fifth() {
        let mut segment = Segment::new(&[7_u32; 16], &[1]);
        let mut moves = 0;
        for _ in 0..1000 {
            let before = segment.tokens.capacity();
            segment.extend(&[7_u32; 16], &[1]);
            moves += usize::from(segment.tokens.capacity() != before);
            let waste = segment.tokens.capacity() - segment.tokens.len();
            assert!(waste <= segment.tokens.capacity() / 5);
        }
        assert!(moves < 40, "{moves}");
    }
}

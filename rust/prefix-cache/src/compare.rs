//! How many whole pages two token slices share.

/// Tokens compared at once when looking for a difference: one kilobyte, a few cache lines.
const WINDOW: usize = 256;

/// Length in tokens of the common prefix of `a` and `b`, rounded down to whole pages.
///
/// Both slices have the same length, a multiple of `page`. The whole slices are compared first
/// (a hit is the common case, and `memcmp` is as fast as memory), then windows, then pages.
#[inline]
pub(crate) fn common_prefix(a: &[u32], b: &[u32], page: usize) -> usize {
    debug_assert_eq!(a.len(), b.len());
    if a == b {
        return a.len();
    }
    let window = WINDOW.max(page);
    let mut at = 0;
    while a.len() - at > window && a[at..at + window] == b[at..at + window] {
        at += window;
    }
    while a[at..at + page] == b[at..at + page] {
        at += page;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::common_prefix;

    #[test]
    fn given_a_difference_anywhere_when_compared_then_whole_pages_before_it_count() {
        for page in [1, 4, 16, 512] {
            let a: Vec<u32> = (0..1024).collect();
            assert_eq!(common_prefix(&a, &a, page), 1024);
            for differs in 0..1024 {
                let mut b = a.clone();
                b[differs] ^= 1 << 31;
                assert_eq!(common_prefix(&a, &b, page), differs / page * page);
            }
        }
    }
}

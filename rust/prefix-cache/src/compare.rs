//! How many whole pages a cached and a given run of tokens share.

use crate::TokenId;

/// Tokens compared at once when looking for a difference: one kilobyte, a few cache lines.
const WINDOW: usize = 256;

/// Length in tokens of the common prefix of both runs, rounded down to whole pages.
///
/// Both have the same length, a multiple of `page`. They are compared whole first (a hit is the
/// common case, and `memcmp` is as fast as memory), then by windows, then by pages.
#[inline]
pub(crate) fn common_prefix<T: TokenId>(cached: &[u32], given: &[T], page: usize) -> usize {
    debug_assert_eq!(cached.len(), given.len());
    if T::all_equal(cached, given) {
        return cached.len();
    }
    first_difference(cached, given, page)
}

/// Apart from the common case, which it would rob of registers.
#[cold]
#[inline(never)]
fn first_difference<T: TokenId>(cached: &[u32], given: &[T], page: usize) -> usize {
    let same = |from: usize, to: usize| T::all_equal(&cached[from..to], &given[from..to]);
    let window = WINDOW.max(page);
    let mut at = 0;
    while cached.len() - at > window && same(at, at + window) {
        at += window;
    }
    while same(at, at + page) {
        at += page;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::common_prefix;

    #[test]
    #[cfg_attr(miri, ignore = "too much for an interpreter")]
    fn given_a_difference_anywhere_when_compared_then_whole_pages_before_it_count() {
        for page in [1, 4, 16, 512] {
            let a: Vec<u32> = (0..1024).collect();
            assert_eq!(common_prefix(&a, &a, page), 1024);
            for differs in 0..1024 {
                let mut b = a.clone();
                b[differs] ^= 1 << 31;
                assert_eq!(common_prefix(&a, &b, page), differs / page * page);
                let wide: Vec<i64> = b.iter().map(|&token| token.into()).collect();
                assert_eq!(common_prefix(&a, &wide, page), differs / page * page);
            }
        }
    }
}

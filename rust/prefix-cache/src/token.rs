//! The integer types that token ids come in: `u32`, and `i32` and `i64` as tensors hold them.

use crate::{Error, MAX_ID};

/// A token id as callers hold it. An `i64` is compared where it lies: no call copies or narrows
/// more of its tokens than it has to look at.
///
/// Implemented for `u32` (fastest), `i32` and `i64`, and closed to others.
///
/// ```
/// # use rampway_prefix_cache::{Error, PrefixCache};
/// # let mut cache = PrefixCache::new(32, 4)?;
/// # let found = cache.match_lock(b"", &[1_u32, 2, 3, 4]);
/// # let mut row = [0];
/// # assert!(cache.alloc(&mut row));
/// cache.insert(found.handle, &[1_u32, 2, 3, 4], &row)?;
/// assert_eq!(cache.peek(b"", &[1_i64, 2, 3, 4]), 4);
/// # Ok::<(), Error>(())
/// ```
pub trait TokenId: Copy + sealed::Sealed {
    /// The id in 32 bits; one that no cached token can have becomes a number above [`MAX_ID`].
    fn id(self) -> u32;

    /// Whether both runs, which have the same length, hold the same ids.
    fn all_equal(cached: &[u32], given: &[Self]) -> bool;
}

impl TokenId for u32 {
    #[inline]
    fn id(self) -> u32 {
        self
    }

    #[inline]
    fn all_equal(cached: &[u32], given: &[Self]) -> bool {
        cached == given
    }
}

impl TokenId for i64 {
    #[inline]
    fn id(self) -> u32 {
        let word = u64::from_ne_bytes(self.to_ne_bytes());
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the halves are looked at apart"
        )]
        let (low, high) = (word as u32, (word >> 32) as u32);
        // Without a branch, so that loops are vectorised.
        low | u32::from(high != 0).wrapping_neg()
    }

    #[inline]
    fn all_equal(cached: &[u32], given: &[Self]) -> bool {
        equal_by_runs(cached, given, |a, b| i64::from(a) ^ b)
    }
}

impl TokenId for i32 {
    #[inline]
    fn id(self) -> u32 {
        u32::from_ne_bytes(self.to_ne_bytes())
    }

    #[inline]
    fn all_equal(cached: &[u32], given: &[Self]) -> bool {
        equal_by_runs(cached, given, |a, b| i64::from(a ^ b.id()))
    }
}

/// Compares by runs long enough to be vectorised and short enough to read little in vain.
#[inline]
fn equal_by_runs<T: Copy>(cached: &[u32], given: &[T], difference: impl Fn(u32, T) -> i64) -> bool {
    const RUN: usize = 64;
    let mut runs = cached.chunks(RUN).zip(given.chunks(RUN));
    runs.all(|(cached, given)| {
        let pairs = cached.iter().zip(given);
        pairs.fold(0, |differ, (&a, &b)| differ | difference(a, b)) == 0
    })
}

/// The error for the first token above `MAX_ID`; one of `tokens` is.
#[cold]
pub(crate) fn first_out_of_range<T: TokenId>(tokens: &[T]) -> Error {
    let mut ids = tokens.iter().map(|token| token.id()).enumerate();
    let (index, token) = ids.find(|&(_, id)| id > MAX_ID).unwrap_or_default();
    Error::TokenOutOfRange { index, token }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for i32 {}
    impl Sealed for i64 {}
}

#[cfg(test)]
mod tests {
    use super::{TokenId, first_out_of_range};
    use crate::Error;

    #[test]
    fn given_wide_ids_when_read_then_those_that_do_not_fit_equal_no_cached_token() {
        for (wide, id) in [
            (0, 0),
            (7, 7),
            (i64::from(u32::MAX), u32::MAX),
            (-1, u32::MAX),
            (1 << 32, u32::MAX),
            ((1 << 32) + 7, u32::MAX),
            (i64::MIN, u32::MAX),
        ] {
            assert_eq!(wide.id(), id);
        }
        assert!(!i64::all_equal(&[7], &[(1 << 32) + 7]));
        assert!(i32::all_equal(&[7], &[7]) && !i32::all_equal(&[7], &[-7]));
        assert_eq!((7_i32.id(), (-1_i32).id()), (7, u32::MAX));
        let refused = |index, token| Error::TokenOutOfRange { index, token };
        assert_eq!(
            first_out_of_range(&[1_i64, -5, 1 << 40]),
            refused(1, u32::MAX)
        );
        assert_eq!(first_out_of_range(&[1_u32, 1 << 31]), refused(1, 1 << 31));
    }

    #[test]
    fn given_one_difference_anywhere_when_wide_runs_are_compared_then_they_differ() {
        let cached: Vec<u32> = (0..200).collect();
        let given: Vec<i64> = (0..200).collect();
        assert!(i64::all_equal(&cached, &given));
        for at in 0..200 {
            let mut other = given.clone();
            other[at] ^= 1 << 33;
            assert!(!i64::all_equal(&cached, &other));
        }
    }
}

//! Operations read from the fuzzer's bytes, applied to the cache and to the naive model of the
//! proptest, which is compared after every one.

#![no_main]

#[path = "../../prefix-cache/tests/world/mod.rs"]
mod world;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use rampway_prefix_cache::Policy;
use world::{Op, World};

fuzz_target!(|bytes: &[u8]| {
    let mut input = Unstructured::new(bytes);
    let Ok(policy) = policy(&mut input) else {
        return;
    };
    let mut world = World::new(policy);
    while !input.is_empty() {
        match op(&mut input) {
            Ok(op) => world.apply(op),
            Err(_) => break,
        }
    }
});

fn policy(input: &mut Unstructured<'_>) -> Result<Policy> {
    let all = [Policy::Lru, Policy::Lfu, Policy::Slru, Policy::Priority];
    input.choose(&all).copied()
}

/// At most 16 tokens of one bit each.
fn text(input: &mut Unstructured<'_>) -> Result<Vec<u32>> {
    let (length, bits): (u8, u16) = (input.arbitrary()?, input.arbitrary()?);
    let tokens = (0..16).map(|i| u32::from(bits >> i & 1));
    Ok(tokens.take(usize::from(length % 17)).collect())
}

fn op(input: &mut Unstructured<'_>) -> Result<Op> {
    let small = |input: &mut Unstructured<'_>| input.int_in_range(0..=25_usize);
    let step = |input: &mut Unstructured<'_>| input.int_in_range(0..=20_u64);
    Ok(match input.int_in_range(0..=16)? {
        0..=4 => Op::Start {
            namespace: input.int_in_range(0..=1)?,
            tokens: text(input)?,
            publish: small(input)?,
        },
        5..=6 => Op::Publish {
            request: small(input)?,
            tokens: text(input)?,
        },
        7 => Op::Prioritize {
            request: small(input)?,
            priority: input.int_in_range(0..=4)?,
        },
        8 => Op::Evict(small(input)?),
        9 => Op::Clear,
        10 => Op::RestartEvents,
        11 => Op::Pin {
            namespace: input.int_in_range(0..=1)?,
            tokens: text(input)?,
            deadline: step(input)?,
        },
        12 => Op::Unpin { pin: small(input)? },
        13 => Op::ExpirePins(step(input)?),
        14 => Op::Misuse {
            page: input.int_in_range(0..=30)?,
            handle: input.arbitrary()?,
        },
        15 => Op::SetQuota {
            namespace: input.int_in_range(0..=1)?,
            pages: input.ratio(3, 4)?.then(|| small(input)).transpose()?,
        },
        16 if input.ratio(1, 4)? => Op::Retire(step(input)?),
        _ => Op::End {
            request: small(input)?,
            fence: input.ratio(1, 2)?.then(|| step(input)).transpose()?,
        },
    })
}

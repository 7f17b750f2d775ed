//! Random operations against a naive model; `check` after every one.

mod world;

use proptest::prelude::*;
use rampway_prefix_cache::Policy;
use world::{Op, World};

/// Mostly zeros, so that long prefixes are shared, whole nodes match and texts extend others.
fn text() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![7 => Just(0_u32), 1 => Just(1)], 0..26)
}

fn op() -> impl Strategy<Value = Op> {
    let request = 0..6_usize;
    prop_oneof![
        6 => (0..2_u8, text(), 0..26_usize)
            .prop_map(|(namespace, tokens, publish)| Op::Start { namespace, tokens, publish }),
        4 => (request.clone(), text()).prop_map(|(request, tokens)| Op::Publish { request, tokens }),
        1 => (request.clone(), 0..4_u8)
            .prop_map(|(request, priority)| Op::Prioritize { request, priority }),
        5 => (request, prop::option::of(0..20_u64)).prop_map(|(request, fence)| Op::End { request, fence }),
        1 => (0..8_usize).prop_map(Op::Evict),
        1 => (0..20_u64).prop_map(Op::Retire),
        1 => Just(Op::Clear),
        1 => Just(Op::RestartEvents),
        1 => (0..2_u8, prop::option::of(0..20_usize))
            .prop_map(|(namespace, pages)| Op::SetQuota { namespace, pages }),
        2 => (0..2_u8, text(), 0..20_u64)
            .prop_map(|(namespace, tokens, deadline)| Op::Pin { namespace, tokens, deadline }),
        1 => (0..6_usize).prop_map(|pin| Op::Unpin { pin }),
        1 => (0..20_u64).prop_map(Op::ExpirePins),
        1 => (0..30_u32, any::<u64>()).prop_map(|(page, handle)| Op::Misuse { page, handle }),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(vec![
        Policy::Lru,
        Policy::Lfu,
        Policy::Slru,
        Policy::Priority,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 1024 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn given_any_operations_when_applied_then_cache_and_model_agree(
        policy in policy(), ops in prop::collection::vec(op(), 1..if cfg!(miri) { 12 } else { 60 })
    ) {
        let mut world = World::new(policy);
        for op in ops {
            world.apply(op);
        }
    }
}

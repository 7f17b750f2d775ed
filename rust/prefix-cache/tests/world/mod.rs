//! Operations applied to a cache and to a naive model of it, compared after every one.
//!
//! The model is a map from whole prefixes to pages, with one recency number a page: no tree, no
//! sharing, no lists. Two token values and short pages make every kind of overlap common.

use std::collections::{BTreeMap, BTreeSet};

use rampway_prefix_cache::{Error, Event, Match, Policy, PrefixCache, Quota};

const PAGE: usize = 2;
const PAGES: usize = 24;

#[derive(Debug, Clone)]
pub enum Op {
    /// Look up, allocate what is missing, publish some of it.
    Start {
        namespace: u8,
        tokens: Vec<u32>,
        publish: usize,
    },
    /// Publish more of a running request, or a longer text.
    Publish {
        request: usize,
        tokens: Vec<u32>,
    },
    /// Make what a request uses more valuable.
    Prioritize {
        request: usize,
        priority: u8,
    },
    /// Finish or abort.
    End {
        request: usize,
        fence: Option<u64>,
    },
    Evict(usize),
    Retire(u64),
    Clear,
    Pin {
        namespace: u8,
        tokens: Vec<u32>,
        deadline: u64,
    },
    Unpin {
        pin: usize,
    },
    ExpirePins(u64),
    RestartEvents,
    /// Let a namespace keep so many pages, or any number.
    SetQuota {
        namespace: u8,
        pages: Option<usize>,
    },
    /// Things that must be refused without a trace.
    Misuse {
        page: u32,
        handle: u64,
    },
}

type Prefix = (u8, Vec<u32>);

/// A cached page of the model, under the prefix that ends with it.
#[derive(Debug, Clone)]
struct Cached {
    page: u32,
    locks: u32,
    touched: u64,
    hits: u8,
    priority: u8,
}

#[derive(Debug)]
struct Request {
    handle: u64,
    namespace: u8,
    tokens: Vec<u32>,
    /// Pages the handle holds, then pages the request owns.
    row: Vec<u32>,
    held: usize,
    priority: u8,
}

#[derive(Debug)]
struct Model {
    policy: Policy,
    cached: BTreeMap<Prefix, Cached>,
    clock: u64,
    retired: Option<u64>,
    waiting_locks: BTreeMap<u64, Vec<(u8, Vec<u32>, usize)>>,
    waiting_pages: BTreeMap<u64, usize>,
    /// (id, deadline, namespace, tokens) of each pin.
    pins: Vec<(u64, u64, u8, Vec<u32>)>,
    quotas: BTreeMap<u8, usize>,
}

impl Model {
    fn prefix(namespace: u8, tokens: &[u32], pages: usize) -> Prefix {
        (namespace, tokens[..pages * PAGE].to_vec())
    }

    fn matched(&self, namespace: u8, tokens: &[u32]) -> Vec<u32> {
        (1..=tokens.len() / PAGE)
            .map_while(|n| self.cached.get(&Self::prefix(namespace, tokens, n)))
            .map(|cached| cached.page)
            .collect()
    }

    fn lock(&mut self, namespace: u8, tokens: &[u32], from: usize, to: usize) {
        for n in from + 1..=to {
            let key = Self::prefix(namespace, tokens, n);
            self.cached.get_mut(&key).unwrap().locks += 1;
        }
    }

    fn unlock(&mut self, namespace: u8, tokens: &[u32], held: usize) {
        for n in (1..=held).rev() {
            self.clock += 1;
            let key = Self::prefix(namespace, tokens, n);
            let cached = self.cached.get_mut(&key).unwrap();
            cached.locks -= 1;
            cached.touched = self.clock;
        }
    }

    fn class(&self, cached: &Cached) -> u8 {
        match self.policy {
            Policy::Lru => 0,
            Policy::Lfu => cached.hits.min(63),
            Policy::Slru => u8::from(cached.hits > 0),
            Policy::Priority => cached.priority,
        }
    }

    fn raise(&mut self, namespace: u8, tokens: &[u32], held: usize, priority: u8) {
        for n in 1..=held {
            let key = Self::prefix(namespace, tokens, n);
            let cached = self.cached.get_mut(&key).unwrap();
            cached.priority = cached.priority.max(priority);
        }
    }

    fn evictable(&self) -> usize {
        self.cached.values().filter(|c| c.locks == 0).count()
    }

    fn evict(&mut self, n: usize) -> usize {
        self.evict_of(n, |_| true)
    }

    fn kept(&self, namespace: u8) -> usize {
        self.cached.keys().filter(|key| key.0 == namespace).count()
    }

    /// Pages of its own that must go, and went, so that the namespace could have `more`.
    fn make_room(&mut self, namespace: u8, more: usize) -> usize {
        let Some(&limit) = self.quotas.get(&namespace) else {
            return 0;
        };
        let over = (self.kept(namespace) + more).saturating_sub(limit);
        self.evict_of(over, |other| other == namespace)
    }

    fn evict_of(&mut self, n: usize, whose: impl Fn(u8) -> bool) -> usize {
        for done in 0..n {
            let oldest = self
                .cached
                .iter()
                .filter(|(key, c)| c.locks == 0 && whose(key.0))
                .min_by_key(|(_, c)| (self.class(c), c.touched))
                .map(|(key, _)| key.clone());
            match oldest {
                Some(key) => drop(self.cached.remove(&key)),
                None => return done,
            }
        }
        n
    }
}

#[derive(Debug)]
pub struct World {
    cache: PrefixCache,
    model: Model,
    running: Vec<Request>,
    /// What a router knows from events: the prefix of each block by its name.
    told: BTreeMap<u64, Prefix>,
}

/// Every other text as 64-bit ids: whichever comes, the cache must do the same.
fn wide(tokens: &[u32]) -> Option<Vec<i64>> {
    let odd = tokens.len() % 2 == 1;
    odd.then(|| tokens.iter().map(|&token| token.into()).collect())
}

fn name(namespace: u8) -> &'static [u8] {
    [b"".as_slice(), b"tenant"][namespace as usize]
}

impl World {
    pub fn new(policy: Policy) -> Self {
        let mut cache = PrefixCache::with_policy(PAGES, PAGE, policy).unwrap();
        cache.enable_events(1000);
        Self {
            cache,
            model: Model {
                policy,
                cached: BTreeMap::new(),
                clock: 0,
                retired: None,
                waiting_locks: BTreeMap::new(),
                waiting_pages: BTreeMap::new(),
                pins: Vec::new(),
                quotas: BTreeMap::new(),
            },
            running: Vec::new(),
            told: BTreeMap::new(),
        }
    }

    pub fn apply(&mut self, op: Op) {
        match op {
            Op::Start {
                namespace,
                tokens,
                publish,
            } => self.start(namespace, &tokens, publish),
            Op::Publish { request, tokens } if !self.running.is_empty() => {
                let request = request % self.running.len();
                self.publish(request, &tokens);
            }
            Op::End { request, fence } if !self.running.is_empty() => {
                let request = self.running.swap_remove(request % self.running.len());
                self.end(request, fence);
            }
            Op::Prioritize { request, priority } if !self.running.is_empty() => {
                let request = request % self.running.len();
                let r = &mut self.running[request];
                r.priority = r.priority.max(priority);
                self.cache.prioritize(r.handle, priority).unwrap();
                self.model.raise(r.namespace, &r.tokens, r.held, r.priority);
            }
            Op::Publish { .. } | Op::End { .. } | Op::Prioritize { .. } => {}
            Op::Evict(n) => assert_eq!(self.cache.evict(n), self.model.evict(n)),
            Op::Clear => assert_eq!(self.cache.clear(), self.model.evict(usize::MAX)),
            Op::Pin {
                namespace,
                tokens,
                deadline,
            } => self.pin(namespace, &tokens, deadline),
            Op::Unpin { pin } if !self.model.pins.is_empty() => {
                let pin = self.model.pins.swap_remove(pin % self.model.pins.len());
                self.model.unlock(pin.2, &pin.3, pin.3.len() / PAGE);
                assert!(self.cache.unpin(pin.0));
                assert!(!self.cache.unpin(pin.0));
            }
            Op::Unpin { .. } => assert!(!self.cache.unpin(0)),
            Op::ExpirePins(now) => self.expire_pins(now),
            Op::RestartEvents => self.cache.enable_events(1000),
            Op::SetQuota { namespace, pages } => {
                match pages {
                    Some(pages) => self.model.quotas.insert(namespace, pages),
                    None => self.model.quotas.remove(&namespace),
                };
                let gone = self.model.make_room(namespace, 0);
                assert_eq!(self.cache.set_quota(name(namespace), pages), gone);
            }
            Op::Retire(step) => self.retire(step),
            Op::Misuse { page, handle } => self.misuse(page, handle),
        }
        self.hear();
        self.compare();
    }

    /// Follows the events as a router does; each must fit what was told before.
    fn hear(&mut self) {
        let drained = self.cache.drain_events();
        assert_eq!(drained.lost, 0);
        for event in drained.events {
            match event {
                Event::Stored {
                    namespace,
                    parent,
                    blocks,
                    tokens,
                } => {
                    let tenant = u8::from(!namespace.is_empty());
                    assert_eq!(*namespace, *name(tenant));
                    let mut prefix = parent.map_or((tenant, Vec::new()), |p| self.told[&p].clone());
                    assert_eq!(prefix.0, tenant);
                    for (block, tokens) in blocks.into_iter().zip(tokens.chunks_exact(PAGE)) {
                        prefix.1.extend(tokens);
                        assert_eq!(self.told.insert(block, prefix.clone()), None);
                    }
                }
                Event::Removed { blocks } => {
                    for block in blocks {
                        assert!(self.told.remove(&block).is_some());
                    }
                }
                Event::Cleared => self.told.clear(),
            }
        }
    }

    fn start(&mut self, namespace: u8, tokens: &[u32], publish: usize) {
        let known = self.model.matched(namespace, tokens);
        assert_eq!(self.cache.peek(name(namespace), tokens), known.len() * PAGE);
        let Match {
            handle,
            matched_tokens,
        } = match wide(tokens) {
            Some(tokens) => self.cache.match_lock(name(namespace), &tokens),
            None => self.cache.match_lock(name(namespace), tokens),
        };
        assert_eq!(matched_tokens, known.len() * PAGE);
        for n in 1..=known.len() {
            let key = Model::prefix(namespace, tokens, n);
            let cached = self.model.cached.get_mut(&key).unwrap();
            cached.hits = cached.hits.saturating_add(1);
        }
        self.model.lock(namespace, tokens, 0, known.len());

        let mut row = vec![0; tokens.len().div_ceil(PAGE)];
        let held = self.cache.fill_pages(handle, &mut row).unwrap();
        assert_eq!(row[..held], known);

        let need = row.len() - held;
        let before = self.cache.stats();
        let fits = self.cache.alloc(&mut row[held..]);
        assert_eq!(fits, need <= before.free + before.evictable);
        if !fits {
            assert_eq!(self.cache.stats(), before);
            self.model.unlock(namespace, tokens, held);
            self.cache.release(handle, None).unwrap();
            return;
        }
        self.model.evict(need.saturating_sub(before.free));
        self.running.push(Request {
            handle,
            namespace,
            tokens: tokens.to_vec(),
            row,
            held,
            priority: 0,
        });
        self.publish(self.running.len() - 1, &tokens[..publish.min(tokens.len())]);
    }

    /// Publishes `tokens` if they begin with what the request holds and it has the pages.
    fn publish(&mut self, request: usize, tokens: &[u32]) {
        let r = &mut self.running[request];
        let total = tokens.len() / PAGE;
        if total > r.row.len() || tokens.get(..r.held * PAGE) != r.tokens.get(..r.held * PAGE) {
            return;
        }
        let known = self.model.matched(r.namespace, tokens).len().max(r.held);
        let done = match wide(tokens) {
            Some(tokens) => self.cache.insert(r.handle, &tokens, &r.row).unwrap(),
            None => self.cache.insert(r.handle, tokens, &r.row).unwrap(),
        };
        if total <= r.held {
            assert_eq!((done.held, done.adopted), (r.held, 0));
            return;
        }
        self.model.lock(r.namespace, tokens, r.held, known);
        let mut total = total;
        if let Some(&limit) = self.model.quotas.get(&r.namespace) {
            self.model.make_room(r.namespace, total - known);
            let room = limit.saturating_sub(self.model.kept(r.namespace));
            total = total.min(known + room);
        }
        let tokens = &tokens[..total * PAGE];
        assert_eq!(done.held, total);
        assert_eq!(done.adopted, total - known);
        assert_eq!(done.duplicates, r.row[r.held..known]);
        for n in known + 1..=total {
            let cached = Cached {
                page: r.row[n - 1],
                locks: 1,
                touched: 0,
                hits: 0,
                priority: r.priority,
            };
            let key = Model::prefix(r.namespace, tokens, n);
            assert!(self.model.cached.insert(key, cached).is_none());
        }
        self.model.raise(r.namespace, tokens, total, r.priority);
        self.cache.free(&done.duplicates, None).unwrap();
        self.cache.fill_pages(r.handle, &mut r.row).unwrap();
        r.tokens = tokens.to_vec();
        r.held = total;
        assert_eq!(r.row[..total], self.model.matched(r.namespace, tokens));
    }

    fn end(&mut self, r: Request, fence: Option<u64>) {
        let own = &r.row[r.held..];
        let ahead = fence.filter(|&f| self.model.retired.is_none_or(|retired| f > retired));
        self.cache.free(own, fence).unwrap();
        self.cache.release(r.handle, fence).unwrap();
        let gone = Err(Error::StaleHandle { handle: r.handle });
        assert_eq!(self.cache.release(r.handle, fence), gone);
        match ahead {
            None => self.model.unlock(r.namespace, &r.tokens, r.held),
            Some(fence) => {
                *self.model.waiting_pages.entry(fence).or_default() += own.len();
                let lock = (r.namespace, r.tokens, r.held);
                self.model
                    .waiting_locks
                    .entry(fence)
                    .or_default()
                    .push(lock);
            }
        }
    }

    fn pin(&mut self, namespace: u8, tokens: &[u32], deadline: u64) {
        let pages = self.model.matched(namespace, tokens).len();
        let before = self.cache.stats();
        match self.cache.pin(name(namespace), tokens, deadline) {
            Ok(Some(pin)) => {
                assert_eq!(pin.tokens, pages * PAGE);
                self.model.lock(namespace, tokens, 0, pages);
                let kept = tokens[..pin.tokens].to_vec();
                self.model.pins.push((pin.id, deadline, namespace, kept));
            }
            Ok(None) => assert_eq!(pages, 0),
            Err(error) => {
                let left = PAGES / 4 - before.pinned_pages;
                assert!(pages > left);
                assert_eq!(error, Error::PinQuota { need: pages, left });
                assert_eq!(self.cache.stats(), before);
            }
        }
    }

    fn expire_pins(&mut self, now: u64) {
        let model = &mut self.model;
        model.pins.sort_by_key(|&(id, deadline, ..)| (deadline, id));
        let due = model
            .pins
            .partition_point(|&(_, deadline, ..)| deadline <= now);
        for (_, _, namespace, tokens) in model.pins.drain(..due).collect::<Vec<_>>() {
            model.unlock(namespace, &tokens, tokens.len() / PAGE);
        }
        assert_eq!(self.cache.expire_pins(now), due);
    }

    fn retire(&mut self, step: u64) {
        let model = &mut self.model;
        model.retired = model.retired.max(Some(step));
        let later = model.waiting_pages.split_off(&(step + 1));
        let freed: usize = std::mem::replace(&mut model.waiting_pages, later)
            .values()
            .sum();
        let later = model.waiting_locks.split_off(&(step + 1));
        for locks in std::mem::replace(&mut model.waiting_locks, later).values() {
            for (namespace, tokens, held) in locks {
                model.unlock(*namespace, tokens, *held);
            }
        }
        assert_eq!(self.cache.retire(step), freed);
    }

    fn misuse(&mut self, page: u32, handle: u64) {
        let before = self.cache.stats();
        if !self.running.iter().any(|r| r.row[r.held..].contains(&page)) {
            assert!(self.cache.free(&[page], None).is_err());
        }
        if !self.running.iter().any(|r| r.handle == handle) {
            let stale = Err(Error::StaleHandle { handle });
            assert_eq!(self.cache.release(handle, None), stale);
        }
        if let Some(r) = self.running.iter().find(|r| r.row.len() > r.held) {
            let last = r.row[r.row.len() - 1];
            let twice = Err(Error::RepeatedPage { page: last });
            assert_eq!(self.cache.free(&[last, last], None), twice);
            let longer = vec![7; (r.row.len() + 1) * PAGE];
            assert!(self.cache.insert(r.handle, &longer, &r.row).is_err());
            let unfit = vec![u32::MAX; r.row.len() * PAGE];
            assert!(self.cache.insert(r.handle, &unfit, &r.row).is_err());
        }
        assert_eq!(self.cache.stats(), before);
    }

    fn compare(&self) {
        self.cache.check().unwrap();
        let stats = self.cache.stats();
        let owned: usize = self.running.iter().map(|r| r.row.len() - r.held).sum();
        assert_eq!(stats.owned, owned);
        assert_eq!(stats.evictable, self.model.evictable());
        assert_eq!(
            stats.protected,
            self.model.cached.len() - self.model.evictable()
        );
        assert_eq!(
            stats.deferred,
            self.model.waiting_pages.values().sum::<usize>()
        );
        assert_eq!(stats.handles, self.running.len());
        let pinned: usize = self.model.pins.iter().map(|pin| pin.3.len() / PAGE).sum();
        assert_eq!(
            (stats.pins, stats.pinned_pages),
            (self.model.pins.len(), pinned)
        );
        for namespace in 0..2 {
            let expected = self.model.quotas.get(&namespace).map(|&limit| Quota {
                pages: self.model.kept(namespace),
                limit,
            });
            assert_eq!(self.cache.quota(name(namespace)), expected);
        }
        let told: BTreeSet<&Prefix> = self.told.values().collect();
        assert!(told.into_iter().eq(self.model.cached.keys()));
        let pages: BTreeSet<u32> = self.model.cached.values().map(|c| c.page).collect();
        assert_eq!(pages.len(), self.model.cached.len());
        for (namespace, tokens) in self.model.cached.keys() {
            assert_eq!(self.cache.peek(name(*namespace), tokens), tokens.len());
        }
    }
}

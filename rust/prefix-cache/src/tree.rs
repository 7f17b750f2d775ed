//! The radix tree: walk, lock, split, grow, trim. Knows no handles and no free pages.
//!
//! A node is a run of pages below its parent; children of a node differ in their first page.

use crate::TokenId;
use crate::compare::common_prefix;
use crate::events::EventLog;
use crate::namespaces::Namespaces;
use crate::quotas::Quotas;
use crate::recency::{Links, Policy, Recency, TOP};
use crate::segment::Segment;
use crate::slab::Slab;
use crate::table::{ChildTable, KeyHash};

/// No node.
pub(crate) const NIL: u32 = u32::MAX;

/// A run of pages `start..start + len` of a segment; or, with parent `NIL` and no pages, the
/// root of a namespace.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) parent: u32,
    /// The index of the namespace it belongs to.
    pub(crate) namespace: u32,
    pub(crate) segment: u32,
    pub(crate) start: u32,
    pub(crate) len: u32,
    pub(crate) hash: KeyHash,
    pub(crate) children: u32,
    /// The one child, if there is one and it is known: chains are walked without hashing.
    pub(crate) only: u32,
    /// Locks on this node or below it.
    pub(crate) locks: u32,
    pub(crate) links: Links,
    /// How often `match_lock` found all of it, up to `TOP`.
    pub(crate) hits: u8,
    /// The highest priority of the handles that covered it.
    pub(crate) priority: u8,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            parent: NIL,
            namespace: NIL,
            segment: NIL,
            start: 0,
            len: 0,
            hash: 0,
            children: 0,
            only: NIL,
            locks: 0,
            links: Links::default(),
            hits: 0,
            priority: 0,
        }
    }
}

impl Node {
    pub(crate) const fn is_root(&self) -> bool {
        self.parent == NIL
    }

    /// Only while locked: it may change the node's class.
    fn add_hits(&mut self, hits: u8) {
        self.hits = (self.hits + hits).min(TOP);
    }

    pub(crate) const fn span(&self) -> std::ops::Range<usize> {
        self.start as usize..(self.start + self.len) as usize
    }
}

/// Where new pages are to come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The node they continue.
    pub(crate) node: u32,
    /// Whether the handle they come through has locked it already.
    pub(crate) is_held: bool,
    /// The priority of that handle.
    pub(crate) priority: u8,
}

/// Pages copied to where they will lie in the tree, which does not have them yet.
#[derive(Debug)]
#[must_use = "pages are copied to be published"]
pub(crate) struct Staged {
    /// How many lie behind the end of the leaf above, which is to grow.
    joining: usize,
    /// The rest, each run a node.
    runs: Vec<Segment>,
}

/// All namespaces' trees in one arena. Evictable and protected pages are counted as they change.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) page_size: usize,
    pub(crate) nodes: Slab<Node>,
    pub(crate) segments: Slab<Segment>,
    pub(crate) table: ChildTable,
    pub(crate) namespaces: Namespaces,
    pub(crate) policy: Policy,
    pub(crate) recency: Recency,
    pub(crate) quotas: Quotas,
    pub(crate) evictable: usize,
    pub(crate) protected: usize,
}

impl Tree {
    pub(crate) fn new(page_size: usize, policy: Policy) -> Self {
        Self {
            page_size,
            nodes: Slab::new(),
            segments: Slab::new(),
            table: ChildTable::new(page_size),
            namespaces: Namespaces::new(),
            policy,
            recency: Recency::new(),
            quotas: Quotas::default(),
            evictable: 0,
            protected: 0,
        }
    }

    /// The root of `namespace`, if it is in use.
    pub(crate) fn find_root(&self, namespace: &[u8]) -> Option<u32> {
        let hash = self.table.hash_bytes(namespace);
        self.namespaces.find(hash, namespace)
    }

    /// The root of `namespace`, locked; made when it is not in use.
    pub(crate) fn lock_root(&mut self, namespace: &[u8]) -> u32 {
        let hash = self.table.hash_bytes(namespace);
        let root = self.namespaces.find(hash, namespace).unwrap_or_else(|| {
            let root = self.nodes.add(Node::default());
            self.nodes[root].namespace = self.namespaces.add(hash, namespace, root);
            root
        });
        self.nodes[root].locks += 1;
        root
    }

    /// What of `rest` (whole pages only) is cached below `node`: the last node found whole, or
    /// `node`, and the pages found, which may be the first of one more node.
    pub(crate) fn find_below<T: TokenId>(&self, mut node: u32, mut rest: &[T]) -> (u32, usize) {
        let mut found = 0;
        while let Some((child, pages)) = self.child(node, rest) {
            found += pages;
            if pages < self.nodes[child].len as usize {
                break;
            }
            rest = &rest[pages * self.page_size..];
            node = child;
        }
        (node, found)
    }

    /// Locks what of `rest` (whole pages only) is cached below `node`, splitting a node that is
    /// matched in part, and adds `hits`. Returns the last node locked, or `node`, and the pages
    /// found.
    pub(crate) fn lock_below<T: TokenId>(
        &mut self,
        mut node: u32,
        mut rest: &[T],
        hits: u8,
    ) -> (u32, usize) {
        let (mut found, mut newly) = (0, 0);
        while let Some((child, pages)) = self.child(node, rest) {
            found += pages;
            if pages < self.nodes[child].len as usize {
                node = self.split_and_lock_upper(child, pages);
                self.nodes[node].add_hits(hits);
                break;
            }
            newly += self.lock(child, hits);
            node = child;
            rest = &rest[pages * self.page_size..];
        }
        self.evictable -= newly;
        self.protected += newly;
        (node, found)
    }

    /// The child of `parent` that shares at least the first page of `rest`, and how many pages.
    #[inline]
    fn child<T: TokenId>(&self, parent: u32, rest: &[T]) -> Option<(u32, usize)> {
        let first = rest.get(..self.page_size)?;
        let only = self.nodes[parent].only;
        if only != NIL {
            let pages = self.common_pages(only, rest);
            return (pages > 0).then_some((only, pages));
        }
        let hash = self.table.hash(parent, first);
        let mut pages = 0;
        let child = self.table.find(hash, |child| {
            if self.nodes[child].parent != parent {
                return false;
            }
            pages = self.common_pages(child, rest);
            pages > 0
        })?;
        Some((child, pages))
    }

    /// Pages that `node` and `rest` begin with alike.
    #[inline]
    fn common_pages<T: TokenId>(&self, node: u32, rest: &[T]) -> usize {
        let cached = self.tokens(node);
        let n = cached.len().min(rest.len());
        common_prefix(&cached[..n], &rest[..n], self.page_size) >> self.page_size.trailing_zeros()
    }

    /// The tokens of `node`.
    pub(crate) fn tokens(&self, node: u32) -> &[u32] {
        let node = &self.nodes[node];
        self.segments[node.segment].tokens(node.span(), self.page_size)
    }

    /// The pages of `node`.
    pub(crate) fn pages(&self, node: u32) -> &[u32] {
        let node = &self.nodes[node];
        if node.is_root() {
            return &[];
        }
        self.segments[node.segment].pages(node.span())
    }

    /// `node` and its ancestors, the root last.
    pub(crate) fn path_up(&self, node: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(node), |&node| {
            let parent = self.nodes[node].parent;
            (parent != NIL).then_some(parent)
        })
    }

    /// The name of the namespace `node` belongs to.
    pub(crate) fn namespace_of(&self, node: u32) -> &[u8] {
        self.namespaces.name(self.nodes[node].namespace)
    }

    pub(crate) fn first_page(&self, node: u32) -> &[u32] {
        let node = &self.nodes[node];
        let first = node.start as usize..node.start as usize + 1;
        self.segments[node.segment].tokens(first, self.page_size)
    }

    /// Locks one node; returns how many pages became protected, for the caller to count.
    #[expect(
        clippy::inline_always,
        reason = "a fifth of the cost of a node, otherwise"
    )]
    #[inline(always)]
    fn lock(&mut self, node: u32, hits: u8) -> usize {
        let n = &mut self.nodes[node];
        n.locks += 1;
        if n.locks > 1 {
            n.add_hits(hits);
            return 0;
        }
        let pages = n.len as usize;
        let (class, links, namespace) = (self.policy.class(n), n.links, n.namespace);
        n.add_hits(hits);
        self.recency.remove(&mut self.nodes, class, links);
        if !self.quotas.is_empty() {
            self.quotas.unlink(namespace, class, node);
        }
        pages
    }

    /// Takes one lock off every node from `node` up to its root. O(nodes on the path).
    pub(crate) fn unlock_path(&mut self, mut node: u32) {
        let mut newly = 0;
        loop {
            let n = &mut self.nodes[node];
            n.locks -= 1;
            let (parent, unlocked, pages) = (n.parent, n.locks == 0, n.len as usize);
            let (class, namespace) = (self.policy.class(n), n.namespace);
            if parent == NIL {
                break;
            }
            if unlocked {
                newly += pages;
                self.recency.push(&mut self.nodes, class, node);
                if !self.quotas.is_empty() {
                    self.quotas.link(namespace, class, node);
                }
            }
            node = parent;
        }
        self.evictable += newly;
        self.protected -= newly;
        self.close_if_unused(node);
    }

    /// Raises the priority of the locked `node` and its ancestors to at least `priority`.
    pub(crate) fn raise_priority(&mut self, mut node: u32, priority: u8) {
        while node != NIL {
            let n = &mut self.nodes[node];
            n.priority = n.priority.max(priority);
            node = n.parent;
        }
    }

    /// Splits `lower` after `pages` pages and returns the new, locked node above it. O(1), no copy.
    ///
    /// `lower` keeps its index, so its children's keys and the locks on it stay as they are.
    fn split_and_lock_upper(&mut self, lower: u32, pages: usize) -> u32 {
        let cut = to_u32(pages);
        let old = &self.nodes[lower];
        let (parent, hash) = (old.parent, old.hash);
        if old.locks == 0 {
            self.evictable -= pages;
            self.protected += pages;
        }
        let upper = self.nodes.add(Node {
            parent,
            namespace: old.namespace,
            segment: old.segment,
            start: old.start,
            len: cut,
            hash,
            children: 1,
            only: lower,
            locks: old.locks + 1,
            hits: old.hits,
            priority: old.priority,
            ..Node::default()
        });
        self.table.replace(hash, lower, upper);
        let above = &mut self.nodes[parent];
        if above.only == lower {
            above.only = upper;
        }
        let n = &mut self.nodes[lower];
        n.parent = upper;
        n.start += cut;
        n.len -= cut;
        let rehashed = self.table.hash(upper, self.first_page(lower));
        self.nodes[lower].hash = rehashed;
        self.table.add(lower, |node| self.nodes[node].hash);
        upper
    }

    /// Copies pages to where they will lie below a node; `None` when a token is above `MAX_ID`.
    /// The tree is as before until [`Self::publish`].
    ///
    /// A leaf nobody else has locked grows in place if the policy lets it, so a prompt computed
    /// in chunks, or a conversation, is one node and not a chain; up to the longest run.
    pub(crate) fn stage<T: TokenId>(
        &mut self,
        place: Place,
        tokens: &[T],
        pages: &[u32],
    ) -> Option<Staged> {
        let n = &self.nodes[place.node];
        let ours_alone = n.locks == u32::from(place.is_held) && n.children == 0;
        let run = self.longest_run();
        let mut joining = 0;
        if !n.is_root() && ours_alone && self.policy.may_join(n, place.priority) {
            joining = run.saturating_sub(n.span().end).min(pages.len());
        }
        let (here, below) = tokens.split_at(joining * self.page_size);
        let (page_ids, below_ids) = pages.split_at(joining);
        if joining > 0 {
            let segment = &mut self.segments[n.segment];
            if !segment.copy_behind(here, page_ids, self.page_size) {
                return None;
            }
        }
        let runs = below
            .chunks(run * self.page_size)
            .zip(below_ids.chunks(run));
        let runs: Option<Vec<Segment>> = runs.map(|(t, p)| Segment::new(t, p)).collect();
        Some(Staged {
            joining,
            runs: runs?,
        })
    }

    /// Adds the first `pages` of what was staged below `node`, which the caller has locked;
    /// returns the locked node they end in.
    pub(crate) fn publish(
        &mut self,
        mut node: u32,
        staged: Staged,
        pages: usize,
        priority: u8,
    ) -> u32 {
        self.protected += pages;
        let n = &mut self.nodes[node];
        self.quotas.count_added(n.namespace, pages);
        let joining = staged.joining.min(pages);
        if joining > 0 {
            n.len += to_u32(joining);
            self.segments[n.segment].lengthen(joining);
        }
        let mut left = pages - joining;
        for mut run in staged.runs {
            run.truncate(run.len().min(left), self.page_size);
            if run.len() == 0 {
                break;
            }
            left -= run.len();
            node = self.add_leaf(node, run, priority);
        }
        node
    }

    /// The pages of the longest run in one allocation: below the size from which allocators ask
    /// the system for fresh pages each time, which costs more than a node.
    fn longest_run(&self) -> usize {
        const BYTES: usize = 96 * 1024;
        (BYTES / (4 * (self.page_size + 1))).max(1)
    }

    /// Adds a locked leaf below the locked `parent`.
    fn add_leaf(&mut self, parent: u32, run: Segment, priority: u8) -> u32 {
        let above = &mut self.nodes[parent];
        above.children += 1;
        let (first_child, namespace) = (above.children == 1, above.namespace);
        let leaf = self.nodes.add(Node {
            parent,
            namespace,
            len: to_u32(run.len()),
            hash: self.table.hash(parent, run.tokens(0..1, self.page_size)),
            segment: self.segments.add(run),
            locks: 1,
            priority,
            ..Node::default()
        });
        self.table.add(leaf, |node| self.nodes[node].hash);
        self.nodes[parent].only = if first_child { leaf } else { NIL };
        leaf
    }

    /// Takes up to `max` pages from the tail of `victim`, a policy's choice or `NIL`, and gives
    /// them to `take`; returns how many. O(pages), whatever the number of nodes.
    pub(crate) fn trim(
        &mut self,
        victim: u32,
        max: usize,
        take: impl FnOnce(&[u32]),
        log: Option<&mut EventLog>,
    ) -> usize {
        if victim == NIL {
            return 0;
        }
        let n = &mut self.nodes[victim];
        debug_assert_eq!(n.children, 0, "the victim is a leaf");
        let given = max.min(n.len as usize);
        let span = n.span();
        n.len -= to_u32(given);
        let emptied = n.len == 0;
        let segment = &mut self.segments[n.segment];
        let tail = segment.pages(span.end - given..span.end);
        take(tail);
        if let Some(log) = log {
            log.removed(tail);
        }
        if span.end > given {
            segment.truncate(span.end - given, self.page_size);
        }
        self.evictable -= given;
        self.quotas.count_removed(n.namespace, given);
        if emptied {
            self.remove_leaf(victim);
        }
        given
    }

    fn remove_leaf(&mut self, leaf: u32) {
        let n = &self.nodes[leaf];
        let (class, links, namespace) = (self.policy.class(n), n.links, n.namespace);
        self.recency.remove(&mut self.nodes, class, links);
        self.quotas.unlink(namespace, class, leaf);
        self.table
            .remove(self.nodes[leaf].hash, leaf, |node| self.nodes[node].hash);
        let Node {
            parent,
            segment,
            start,
            ..
        } = self.nodes.remove(leaf);
        if start == 0 {
            self.segments.remove(segment);
        }
        let above = &mut self.nodes[parent];
        above.children -= 1;
        above.only = NIL;
        self.close_if_unused(parent);
    }

    /// Forgets a namespace without pages, locks and quota, so that ever new tenants cost no memory.
    fn close_if_unused(&mut self, root: u32) {
        let n = &self.nodes[root];
        let unused = n.is_root() && n.children == 0 && n.locks == 0;
        if unused && self.quotas.get(n.namespace).is_none() {
            self.namespaces.remove(n.namespace);
            self.nodes.remove(root);
        }
    }
}

/// A count of pages, which `PagePool::new` keeps below 2^31.
pub(crate) fn to_u32(pages: usize) -> u32 {
    u32::try_from(pages).expect("a node holds fewer pages than the pool")
}

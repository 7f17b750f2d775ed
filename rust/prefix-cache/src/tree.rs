//! The radix tree: walk, lock, split, grow, trim. Knows no handles and no free pages.
//!
//! A node is a run of pages below its parent; children of a node differ in their first page.

use crate::compare::common_prefix;
use crate::events::EventLog;
use crate::namespaces::Namespaces;
use crate::pool::PagePool;
use crate::recency::{Policy, Recency, TOP};
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
    /// Of a root: the index of its namespace.
    pub(crate) segment: u32,
    pub(crate) start: u32,
    pub(crate) len: u32,
    pub(crate) hash: KeyHash,
    pub(crate) children: u32,
    /// Locks on this node or below it.
    pub(crate) locks: u32,
    pub(crate) older: u32,
    pub(crate) younger: u32,
    /// How often `match_lock` found all of it, up to `TOP`.
    pub(crate) hits: u8,
    /// The highest priority of the handles that covered it.
    pub(crate) priority: u8,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            parent: NIL,
            segment: NIL,
            start: 0,
            len: 0,
            hash: 0,
            children: 0,
            locks: 0,
            older: NIL,
            younger: NIL,
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

/// All namespaces' trees in one arena. Evictable and protected pages are counted as they change.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) page_size: usize,
    pub(crate) nodes: Slab<Node>,
    pub(crate) segments: Slab<Segment>,
    pub(crate) table: ChildTable,
    pub(crate) namespaces: Namespaces,
    pub(crate) recency: Recency,
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
            recency: Recency::new(policy),
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
            self.nodes[root].segment = self.namespaces.add(hash, namespace, root);
            root
        });
        self.nodes[root].locks += 1;
        root
    }

    /// Pages of `rest` (whole pages only) that are cached below `node`.
    pub(crate) fn count_below(&self, mut node: u32, mut rest: &[u32]) -> usize {
        let mut found = 0;
        while let Some((child, pages)) = self.child(node, rest) {
            found += pages;
            if pages < self.nodes[child].len as usize {
                break;
            }
            rest = &rest[pages * self.page_size..];
            node = child;
        }
        found
    }

    /// Locks what of `rest` (whole pages only) is cached below `node`, splitting a node that is
    /// matched in part, and adds `hits`. Returns the last node locked, or `node`, and the pages
    /// found.
    pub(crate) fn lock_below(&mut self, mut node: u32, mut rest: &[u32], hits: u8) -> (u32, usize) {
        let mut found = 0;
        while let Some((child, pages)) = self.child(node, rest) {
            found += pages;
            if pages < self.nodes[child].len as usize {
                node = self.split_and_lock_upper(child, pages);
                self.nodes[node].add_hits(hits);
                break;
            }
            self.lock(child);
            self.nodes[child].add_hits(hits);
            node = child;
            rest = &rest[pages * self.page_size..];
        }
        (node, found)
    }

    /// The child of `parent` that shares at least the first page of `rest`, and how many pages.
    #[inline]
    fn child(&self, parent: u32, rest: &[u32]) -> Option<(u32, usize)> {
        let hash = self.table.hash(parent, rest.get(..self.page_size)?);
        let mut common = 0;
        let child = self.table.find(hash, |child| {
            if self.nodes[child].parent != parent {
                return false;
            }
            let cached = self.tokens(child);
            let n = cached.len().min(rest.len());
            common = common_prefix(&cached[..n], &rest[..n], self.page_size);
            common > 0
        })?;
        Some((child, common >> self.page_size.trailing_zeros()))
    }

    /// The tokens of `node`.
    pub(crate) fn tokens(&self, node: u32) -> &[u32] {
        let node = &self.nodes[node];
        let span = node.span();
        &self.segments[node.segment].tokens[span.start * self.page_size..span.end * self.page_size]
    }

    /// The pages of `node`.
    pub(crate) fn pages(&self, node: u32) -> &[u32] {
        let node = &self.nodes[node];
        if node.is_root() {
            return &[];
        }
        &self.segments[node.segment].pages[node.span()]
    }

    /// `node` and its ancestors, the root last.
    pub(crate) fn path_up(&self, node: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(node), |&node| {
            let parent = self.nodes[node].parent;
            (parent != NIL).then_some(parent)
        })
    }

    /// The namespace `node` belongs to. O(depth).
    pub(crate) fn namespace_of(&self, node: u32) -> &[u8] {
        let root = self.path_up(node).last().unwrap_or(node);
        self.namespaces.name(self.nodes[root].segment)
    }

    pub(crate) fn first_page(&self, node: u32) -> &[u32] {
        let node = &self.nodes[node];
        let start = node.start as usize * self.page_size;
        &self.segments[node.segment].tokens[start..start + self.page_size]
    }

    #[inline]
    fn lock(&mut self, node: u32) {
        let n = &mut self.nodes[node];
        n.locks += 1;
        if n.locks == 1 {
            self.evictable -= n.len as usize;
            self.protected += n.len as usize;
            self.recency.remove(&mut self.nodes, node);
        }
    }

    /// Takes one lock off every node from `node` up to its root. O(nodes on the path).
    pub(crate) fn unlock_path(&mut self, mut node: u32) {
        loop {
            let n = &mut self.nodes[node];
            n.locks -= 1;
            let (parent, unlocked, pages) = (n.parent, n.locks == 0, n.len as usize);
            if parent == NIL {
                return self.close_if_unused(node);
            }
            if unlocked {
                self.evictable += pages;
                self.protected -= pages;
                self.recency.push(&mut self.nodes, node);
            }
            node = parent;
        }
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
            segment: old.segment,
            start: old.start,
            len: cut,
            hash,
            children: 1,
            locks: old.locks + 1,
            hits: old.hits,
            priority: old.priority,
            ..Node::default()
        });
        self.table.replace(hash, lower, upper);
        let n = &mut self.nodes[lower];
        n.parent = upper;
        n.start += cut;
        n.len -= cut;
        let rehashed = self.table.hash(upper, self.first_page(lower));
        self.nodes[lower].hash = rehashed;
        self.table.add(lower, |node| self.nodes[node].hash);
        upper
    }

    /// Adds pages below `node`, which the caller has locked; returns the locked node they are in.
    ///
    /// A leaf nobody else has locked grows in place if the policy lets it, so a prompt computed
    /// in chunks, or a conversation, is one node and not a chain.
    pub(crate) fn grow(&mut self, node: u32, tokens: &[u32], pages: &[u32], priority: u8) -> u32 {
        self.protected += pages.len();
        let policy = self.recency.policy;
        let n = &mut self.nodes[node];
        let ours_alone = !n.is_root() && n.locks == 1 && n.children == 0;
        if ours_alone && policy.may_join(n, priority) {
            n.len += to_u32(pages.len());
            self.segments[n.segment].extend(tokens, pages);
            return node;
        }
        n.children += 1;
        let leaf = self.nodes.add(Node {
            parent: node,
            segment: self.segments.add(Segment::new(tokens, pages)),
            len: to_u32(pages.len()),
            hash: self.table.hash(node, &tokens[..self.page_size]),
            locks: 1,
            priority,
            ..Node::default()
        });
        self.table.add(leaf, |node| self.nodes[node].hash);
        leaf
    }

    /// Gives up to `max` pages from the tail of the policy's victim to the pool; returns how many,
    /// 0 when nothing is evictable. O(pages), whatever the number of nodes.
    pub(crate) fn trim_oldest(
        &mut self,
        max: usize,
        pool: &mut PagePool,
        log: Option<&mut EventLog>,
    ) -> usize {
        let victim = self.recency.victim();
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
        let tail = &segment.pages[span.end - given..span.end];
        pool.give_up(tail);
        if let Some(log) = log {
            log.removed(tail);
        }
        segment.truncate(span.end - given, self.page_size);
        self.evictable -= given;
        if emptied {
            self.remove_leaf(victim);
        }
        given
    }

    fn remove_leaf(&mut self, leaf: u32) {
        self.recency.remove(&mut self.nodes, leaf);
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
        self.nodes[parent].children -= 1;
        self.close_if_unused(parent);
    }

    /// Forgets a namespace without pages and locks, so that ever new tenants cost no memory.
    fn close_if_unused(&mut self, root: u32) {
        let n = &self.nodes[root];
        if n.is_root() && n.children == 0 && n.locks == 0 {
            self.namespaces.remove(n.segment);
            self.nodes.remove(root);
        }
    }
}

/// A count of pages, which `PagePool::new` keeps below 2^31.
pub(crate) fn to_u32(pages: usize) -> u32 {
    u32::try_from(pages).expect("a node holds fewer pages than the pool")
}

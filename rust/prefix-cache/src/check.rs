//! The self-check: every invariant this crate relies on, recomputed from scratch.

use crate::handles::Lock;
use crate::tree::Node;
use crate::waiting::Item;
use crate::{Error, PrefixCache, Result};

impl PrefixCache {
    /// Recomputes every count, link, key and owner and compares.
    ///
    /// O(pages + nodes + handles × depth). For tests, soak runs and bug reports.
    ///
    /// # Errors
    /// [`Error::Corrupt`] names the first difference; it is a bug in this crate.
    pub fn check(&self) -> Result<()> {
        let live: Vec<_> = self.tree.nodes.live().collect();
        self.check_shape(&live)?;
        self.check_locks(&live)?;
        self.check_recency(&live)?;
        self.check_quotas()?;
        self.check_pages(&live)
    }

    /// Parents, children, keys, and how nodes share segments.
    fn check_shape(&self, live: &[(u32, &Node)]) -> Result<()> {
        let tree = &self.tree;
        let mut children = vec![0_u32; tree.nodes.slots().count()];
        let mut used = vec![0_usize; tree.segments.slots().count()];
        for &(index, node) in live.iter().filter(|(_, node)| !node.is_root()) {
            require(node.len > 0, || format!("node {index} is empty"))?;
            let parent = live.binary_search_by_key(&node.parent, |(index, _)| *index);
            require(parent.is_ok(), || format!("node {index} has no parent"))?;
            children[node.parent as usize] += 1;
            used[node.segment as usize] += node.len as usize;

            let above = &tree.nodes[node.parent];
            let starts_well = node.start == 0
                || (above.segment == node.segment && above.start + above.len == node.start);
            require(
                starts_well && (node.start > 0 || above.is_root() || above.segment != node.segment),
                || format!("node {index} does not continue its segment"),
            )?;
            require(node.namespace == above.namespace, || {
                format!("node {index} is in another namespace than its parent")
            })?;
            let first = tree.first_page(index);
            let hash = tree.table.hash(node.parent, first);
            let found = tree.table.find(hash, |child| {
                tree.nodes[child].parent == node.parent && tree.first_page(child) == first
            });
            require(hash == node.hash && found == Some(index), || {
                format!("node {index} is not found by its key: got {found:?}")
            })?;
        }
        for &(index, node) in live {
            require(node.children == children[index as usize], || {
                format!("children of node {index} differ: got {}", node.children)
            })?;
            let known = node.only != crate::tree::NIL;
            let one = !known || (node.children == 1 && tree.nodes[node.only].parent == index);
            require(one, || format!("node {index} has not only one child"))?;
        }
        for (index, segment) in tree.segments.slots() {
            let (got, need) = (segment.len(), used[index as usize]);
            require(got == need, || {
                format!("segment {index} has other pages than its nodes: got {got}, need {need}")
            })?;
        }
        let roots = live.iter().filter(|(_, node)| node.is_root()).count();
        require(
            tree.namespaces.iter().count() == roots && tree.table.len() == live.len() - roots,
            || "the tables and the nodes differ in number".into(),
        )?;
        for namespace in tree.namespaces.iter() {
            let root = tree.find_root(&namespace.name);
            let node = &tree.nodes[namespace.root];
            require(
                root == Some(namespace.root)
                    && node.is_root()
                    && (node.children + node.locks > 0
                        || tree.quotas.get(node.namespace).is_some()),
                || format!("namespace {:?} is lost or unused", namespace.name),
            )?;
        }
        Ok(())
    }

    /// Every node is locked exactly as often as live and waiting handles and pins say.
    fn check_locks(&self, live: &[(u32, &Node)]) -> Result<()> {
        let tree = &self.tree;
        let mut locks = vec![0_u32; tree.nodes.slots().count()];
        let waiting = self.waiting.items().filter_map(|item| match item {
            Item::Unlock(lock) => Some(*lock),
            Item::Free(_) => None,
        });
        for Lock { node, held, .. } in self.handles.locks().chain(waiting).chain(self.pins.locks())
        {
            let mut pages = 0;
            for node in tree.path_up(node) {
                locks[node as usize] += 1;
                pages += tree.nodes[node].len;
            }
            require(pages == held, || {
                format!("a handle holds {held} pages, its path has {pages}")
            })?;
        }
        for &(index, node) in live {
            require(node.locks == locks[index as usize], || {
                format!("locks of node {index} differ: got {}", node.locks)
            })?;
        }
        Ok(())
    }

    /// The lists hold exactly the unlocked nodes; a child comes before its parent.
    fn check_recency(&self, live: &[(u32, &Node)]) -> Result<()> {
        let tree = &self.tree;
        let mut place = vec![0_usize; tree.nodes.slots().count()];
        let mut length = 0;
        for (class, list) in tree.recency.lists(&tree.nodes, live.len() + 1) {
            let linked = tree.recency.is_linked(&tree.nodes, class, &list);
            let alike = list
                .iter()
                .all(|&node| tree.policy.class(&tree.nodes[node]) == class);
            require(linked && alike, || {
                format!("list of class {class} is broken")
            })?;
            for node in list {
                length += 1;
                place[node as usize] = length;
            }
        }
        for &(index, node) in live.iter().filter(|(_, node)| !node.is_root()) {
            let (own, above) = (place[index as usize], place[node.parent as usize]);
            require((own > 0) == (node.locks == 0), || {
                format!("node {index} is locked and evictable, or neither")
            })?;
            require(above == 0 || own < above, || {
                format!("node {index} is evicted after its parent")
            })?;
        }
        let unlocked = live
            .iter()
            .filter(|(_, node)| !node.is_root() && node.locks == 0);
        require(unlocked.count() == length, || {
            "dead nodes are evictable".into()
        })
    }

    /// Every page has one owner, and the counts add up.
    fn check_pages(&self, live: &[(u32, &Node)]) -> Result<()> {
        let mut in_tree = vec![false; self.pool.total()];
        let (mut evictable, mut protected) = (0, 0);
        for &(index, node) in live {
            match node.locks {
                0 => evictable += node.len as usize,
                _ => protected += node.len as usize,
            }
            for &page in self.tree.pages(index) {
                let twice = std::mem::replace(&mut in_tree[page as usize], true);
                require(!twice, || format!("page {page} is in the tree twice"))?;
            }
        }
        let got = (self.tree.evictable, self.tree.protected);
        require(got == (evictable, protected), || {
            format!("evictable, protected differ: got {got:?}, need {evictable}, {protected}")
        })?;
        self.pool.check(&in_tree)?;
        let pinned: usize = self.pins.locks().map(|lock| lock.held as usize).sum();
        require(pinned == self.pins.pages, || "pinned pages differ".into())?;
        let waiting: usize = self.waiting.items().map(Item::pages).sum();
        require(waiting == self.pool.deferred, || {
            "deferred pages are lost".into()
        })?;
        let s = self.stats();
        let sum = s.free + s.evictable + s.protected + s.owned + s.deferred + s.reserved;
        require(sum == s.total, || {
            format!("pages do not add up: got {sum}, need {}", s.total)
        })
    }
}

fn require(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(Error::Corrupt(what()))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Error, PrefixCache};

    /// A cache with a split path, a lock, an owned page and one behind a fence.
    fn lived_in() -> PrefixCache {
        let mut cache = PrefixCache::new(32, 4).expect("sizes are right");
        cache.set_quota(b"a", Some(20));
        for text in [[1_u32; 16], [2; 16]] {
            let found = cache.match_lock(b"a", &text);
            let mut row = [0; 6];
            assert!(cache.alloc(&mut row));
            cache
                .insert(found.handle, &text, &row)
                .expect("pages are ours");
            cache.free(&row[4..5], Some(3)).expect("it is ours");
            cache.release(found.handle, None).expect("it is live");
        }
        let _held = cache.match_lock(b"a", &[1; 8]);
        cache.check().expect("nothing is broken yet");
        cache
    }

    #[test]
    fn mini_sglang_149_given_any_broken_invariant_when_checked_then_it_is_found() {
        type Damage = fn(&mut PrefixCache);
        let damages: [(&str, Damage); 12] = [
            ("evictable", |c| c.tree.evictable += 1),
            ("protected", |c| c.tree.protected -= 1),
            ("owned", |c| c.pool.owned += 1),
            ("deferred", |c| c.pool.deferred -= 1),
            ("locks", |c| c.tree.nodes[1].locks += 1),
            ("children", |c| c.tree.nodes[0].children += 1),
            ("hash", |c| c.tree.nodes[1].hash ^= 1),
            ("length", |c| c.tree.nodes[2].len -= 1),
            ("class", |c| {
                c.tree.policy = crate::Policy::Lfu;
                (1..4).for_each(|node| c.tree.nodes[node].hits = 9);
            }),
            ("only", |c| c.tree.nodes[0].only = 1),
            ("namespace", |c| c.tree.nodes[1].namespace += 1),
            ("pinned", |c| c.pins.pages += 1),
        ];
        for (what, damage) in damages {
            let mut cache = lived_in();
            damage(&mut cache);
            let found = cache.check();
            assert!(matches!(found, Err(Error::Corrupt(_))), "{what}: {found:?}");
        }
    }
}

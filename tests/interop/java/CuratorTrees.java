import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.cache.PathChildrenCache;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.nodes.PersistentTtlNode;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.watch.PersistentWatcher;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;

/** Nodes, transactions, caches, kept nodes, queues, watches: what two clients saw, a fact on a line. */
final class CuratorTrees {
    private final CuratorFramework one;
    private final CuratorFramework two;

    CuratorTrees(CuratorFramework one, CuratorFramework two) {
        this.one = one;
        this.two = two;
    }

    void walk() throws Exception {
        nodes();
        transactions();
        curatorCache();
        oldCaches();
        persistentNodes();
        queue();
        persistentWatcher();
    }

    // -- nodes ---------------------------------------------------------------------------------

    private void nodes() throws Exception {
        String path = one.create().creatingParentContainersIfNeeded().forPath("/nodes/deep/leaf",
                Curator.bytes("x"));
        Curator.say("nodes: created " + path + " " + Curator.text(two.getData().forPath(path)));
        Curator.say("nodes: protected " + one.create().withProtection()
                .withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath("/nodes/p-")
                .replaceAll("_c_[0-9a-f-]{36}", "GUID"));
        Curator.say("nodes: or set "
                + one.create().orSetData().forPath("/nodes/deep/leaf", Curator.bytes("y"))
                + " " + Curator.text(two.getData().forPath(path)));
        one.create().withTtl(60_000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath("/nodes/ttl");
        Curator.say("nodes: children "
                + new TreeSet<>(withoutProtected(two.getChildren().forPath("/nodes"))));
        one.delete().deletingChildrenIfNeeded().forPath("/nodes/ttl");
        CountDownLatch gone = new CountDownLatch(1);
        // The container of a leaf that is deleted goes by itself, a while later.
        two.checkExists().usingWatcher((Watcher) event -> gone.countDown()).forPath("/nodes/deep");
        one.delete().guaranteed().forPath("/nodes/deep/leaf");
        Curator.say("nodes: empty container gone " + gone.await(Curator.WAIT_S_MAX, TimeUnit.SECONDS));
    }

    private static List<String> withoutProtected(List<String> names) {
        List<String> plain = new ArrayList<>(names);
        plain.removeIf(name -> name.startsWith("_c_"));
        return plain;
    }

    private void transactions() throws Exception {
        one.create().forPath("/tx");
        Collection<CuratorTransactionResult> results = one.transaction().forOperations(
                one.transactionOp().create().forPath("/tx/a", Curator.bytes("1")),
                one.transactionOp().setData().forPath("/tx", Curator.bytes("2")),
                one.transactionOp().check().withVersion(1).forPath("/tx"),
                one.transactionOp().delete().forPath("/tx/a"));
        for (CuratorTransactionResult result : results) {
            Curator.say("transaction: " + result.getType() + " " + result.getForPath() + " "
                    + result.getError());
        }
        try {
            one.transaction().forOperations(
                    one.transactionOp().setData().forPath("/tx", Curator.bytes("never")),
                    one.transactionOp().check().withVersion(77).forPath("/tx"));
        } catch (KeeperException failure) {
            Curator.say("transaction: failed " + failure.code() + " "
                    + Curator.text(two.getData().forPath("/tx")));
        }
    }

    // -- caches --------------------------------------------------------------------------------

    /** It follows by one persistent recursive watch. */
    private void curatorCache() throws Exception {
        one.create().creatingParentsIfNeeded().forPath("/cache/old/leaf", Curator.bytes("0"));
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        CuratorCache cache = CuratorCache.build(two, "/cache");
        CountDownLatch ready = new CountDownLatch(1);
        cache.listenable().addListener(new CuratorCacheListener() {
            @Override
            public void event(
                    Type type,
                    ChildData before,
                    ChildData after) {
                ChildData data = after == null ? before : after;
                seen.add(type + " " + data.getPath() + " " + Curator.text(data.getData()));
            }

            @Override
            public void initialized() {
                ready.countDown();
            }
        });
        cache.start();
        ready.await(Curator.WAIT_S_MAX, TimeUnit.SECONDS);
        Curator.say("cache: at first " + Curator.next(seen, 3));
        one.create().forPath("/cache/new", Curator.bytes("1"));
        Curator.say("cache: " + Curator.next(seen));
        one.setData().forPath("/cache/old/leaf", Curator.bytes("2"));
        Curator.say("cache: " + Curator.next(seen));
        one.delete().forPath("/cache/old/leaf");
        Curator.say("cache: " + Curator.next(seen));
        Curator.say("cache: size " + cache.size());
        cache.close();
    }

    @SuppressWarnings("deprecation")
    private void oldCaches() throws Exception {
        one.create().creatingParentsIfNeeded().forPath("/old-cache/a", Curator.bytes("0"));
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        try (PathChildrenCache children = new PathChildrenCache(two, "/old-cache", true)) {
            children.getListenable().addListener((client, event) -> seen.add(
                    event.getType() + " " + event.getData().getPath() + " "
                            + Curator.text(event.getData().getData())));
            children.start(PathChildrenCache.StartMode.BUILD_INITIAL_CACHE);
            Curator.say("path cache: at first " + children.getCurrentData().size());
            one.create().forPath("/old-cache/b", Curator.bytes("1"));
            Curator.say("path cache: " + Curator.next(seen));
            one.setData().forPath("/old-cache/b", Curator.bytes("2"));
            Curator.say("path cache: " + Curator.next(seen));
            one.delete().forPath("/old-cache/b");
            Curator.say("path cache: " + Curator.next(seen));
        }
        BlockingQueue<String> changes = new LinkedBlockingQueue<>();
        try (TreeCache tree = new TreeCache(two, "/old-cache")) {
            tree.getListenable().addListener((client, event) -> changes.add(
                    event.getType() + (event.getData() == null ? "" : " " + event.getData().getPath())));
            tree.start();
            List<String> first = new ArrayList<>();
            String change;
            while (!(change = Curator.next(changes)).equals("INITIALIZED")) {
                first.add(change);
            }
            Curator.say("tree cache: at first " + first);
            one.create().forPath("/old-cache/a/deep");
            Curator.say("tree cache: " + Curator.next(changes));
            one.delete().forPath("/old-cache/a/deep");
            Curator.say("tree cache: " + Curator.next(changes));
        }
    }

    // -- nodes that are kept, queues, watches --------------------------------------------------

    private void persistentNodes() throws Exception {
        PersistentNode node = new PersistentNode(one, CreateMode.EPHEMERAL, false, "/persistent",
                Curator.bytes("here"));
        node.start();
        node.waitForInitialCreate(Curator.WAIT_S_MAX, TimeUnit.SECONDS);
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        two.checkExists()
                .usingWatcher((Watcher) event -> seen.add(event.getType().name()))
                .forPath("/persistent");
        two.delete().forPath("/persistent");
        Curator.say("persistent node: " + Curator.next(seen));
        while (two.checkExists().forPath("/persistent") == null) {
            Thread.sleep(5);
        }
        Curator.say("persistent node: made again " + Curator.text(two.getData().forPath("/persistent")));
        node.close();
        Curator.say("persistent node: closed " + (two.checkExists().forPath("/persistent") == null));
        PersistentTtlNode ttl = new PersistentTtlNode(one, "/persistent-ttl", 60_000, Curator.bytes("ttl"));
        ttl.start();
        ttl.waitForInitialCreate(Curator.WAIT_S_MAX, TimeUnit.SECONDS);
        Curator.say("persistent ttl node: " + Curator.text(two.getData().forPath("/persistent-ttl")));
        ttl.close();
        GroupMember member = new GroupMember(one, "/group", "one", Curator.bytes("first"));
        GroupMember other = new GroupMember(two, "/group", "two", Curator.bytes("second"));
        member.start();
        other.start();
        while (member.getCurrentMembers().size() < 2) {
            Thread.sleep(5);
        }
        Curator.say("group: " + new TreeSet<>(member.getCurrentMembers().keySet()));
        other.close();
        while (member.getCurrentMembers().size() > 1) {
            Thread.sleep(5);
        }
        Curator.say("group: " + new TreeSet<>(member.getCurrentMembers().keySet()));
        member.close();
    }

    @SuppressWarnings("deprecation")
    private void queue() throws Exception {
        BlockingQueue<String> taken = new LinkedBlockingQueue<>();
        QueueSerializer<String> serializer = new QueueSerializer<>() {
            @Override
            public byte[] serialize(String item) {
                return Curator.bytes(item);
            }

            @Override
            public String deserialize(byte[] item) {
                return Curator.text(item);
            }
        };
        QueueConsumer<String> consumer = new QueueConsumer<>() {
            @Override
            public void consumeMessage(String message) {
                taken.add(message);
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {}
        };
        DistributedQueue<String> out = QueueBuilder.builder(one, null, serializer, "/queue").buildQueue();
        DistributedQueue<String> in =
                QueueBuilder.builder(two, consumer, serializer,
                        "/queue").lockPath("/queue-locks").buildQueue();
        out.start();
        for (int number = 0; number < 10; number++) {
            out.put("" + number);
        }
        out.flushPuts(Curator.WAIT_S_MAX, TimeUnit.SECONDS);
        in.start();
        List<String> items = new ArrayList<>(Curator.next(taken, 10));
        Collections.sort(items);
        Curator.say("queue: " + items);
        in.close();
        out.close();
    }

    private void persistentWatcher() throws Exception {
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        one.create().forPath("/w");
        PersistentWatcher watcher = new PersistentWatcher(two, "/w", true);
        watcher.getListenable().addListener(event -> seen.add(event.getType() + " " + event.getPath()));
        CountDownLatch set = new CountDownLatch(1);
        watcher.getResetListenable().addListener(set::countDown);
        watcher.start();
        set.await(Curator.WAIT_S_MAX, TimeUnit.SECONDS);
        one.create().forPath("/w/a");
        one.create().forPath("/w/a/b");
        one.setData().forPath("/w/a/b");
        one.delete().forPath("/w/a/b");
        Curator.say("persistent watcher: " + Curator.next(seen, 4));
        watcher.close();
        two.watchers().add().withMode(AddWatchMode.PERSISTENT)
                .usingWatcher((Watcher) event -> seen.add(event.getType() + " " + event.getPath()))
                .forPath("/w");
        one.setData().forPath("/w");
        one.create().forPath("/w/c");
        one.setData().forPath("/w/c");
        one.setData().forPath("/w");
        Curator.say("persistent watch: " + Curator.next(seen, 3));
        two.watchers().removeAll().forPath("/w");
    }
}

import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;

/**
 * A tour of Apache Curator; the test judges what it prints.
 *
 * <p>Arguments: the server's address, and "tour"; or "hold" and a path, to take a lock, say so, and wait
 * to be killed; or "follow", to lead and to follow a tree while the test breaks the connection.
 */
public final class CuratorTour {
    private CuratorTour() {}

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        switch (arguments[1]) {
            case "tour" -> {
                try (CuratorFramework one = Curator.connect(address, Curator.CALM_MS);
                        CuratorFramework two = Curator.connect(address, Curator.CALM_MS)) {
                    new CuratorTrees(one, two).walk();
                    new CuratorLocks(one, two).walk();
                }
            }
            case "hold" -> hold(address, arguments[2]);
            case "follow" -> follow(address);
            default -> throw new IllegalArgumentException(arguments[1]);
        }
        System.exit(0);
    }

    private static void hold(String address, String path) throws Exception {
        CuratorFramework client = Curator.connect(address, Curator.SHORT_MS);
        InterProcessMutex lock = new InterProcessMutex(client, path);
        if (!lock.acquire(Curator.WAIT_S_MAX, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no lock");
        }
        LeaderLatch latch = new LeaderLatch(client, path + "-latch");
        latch.start();
        latch.await();
        Curator.say("holds");
        Thread.sleep(Long.MAX_VALUE);
    }

    private static void follow(String address) throws Exception {
        CuratorFramework client = Curator.connect(address, Curator.SHORT_MS);
        client.getConnectionStateListenable().addListener((source, state) -> {
            // That it is connected at first may be told late, or not at all.
            if (state != ConnectionState.CONNECTED) {
                Curator.say("state " + state);
            }
        });
        LeaderLatch latch = new LeaderLatch(client, "/follow-latch", "follower");
        latch.addListener(new LeaderLatchListener() {
            @Override
            public void isLeader() {
                Curator.say("leads");
            }

            @Override
            public void notLeader() {
                Curator.say("leads no more");
            }
        });
        latch.start();
        CuratorCache cache = CuratorCache.build(client, "/followed");
        cache.listenable().addListener((type, before, after) ->
                Curator.say(type + " " + (after == null ? before : after).getPath()));
        cache.start();
        System.in.read();
        latch.close();
        cache.close();
        client.close();
        Curator.say("closed");
    }
}

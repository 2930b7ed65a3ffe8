import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedCountListener;
import org.apache.curator.framework.recipes.shared.SharedCountReader;
import org.apache.curator.framework.recipes.shared.VersionedValue;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryOneTime;

/** Locks, leaders, barriers and counters: each step says what two clients saw, a fact on a line. */
final class CuratorLocks {
    private final CuratorFramework one;
    private final CuratorFramework two;
    private final ExecutorService threads = Executors.newCachedThreadPool();

    CuratorLocks(CuratorFramework one, CuratorFramework two) {
        this.one = one;
        this.two = two;
    }

    void walk() throws Exception {
        mutex();
        readWriteLock();
        semaphores();
        latch();
        selector();
        barriers();
        counts();
        threads.shutdownNow();
    }

    // -- locks ---------------------------------------------------------------------------------

    private void mutex() throws Exception {
        InterProcessMutex first = new InterProcessMutex(one, "/mutex");
        InterProcessMutex second = new InterProcessMutex(two, "/mutex");
        first.acquire();
        first.acquire();
        Curator.say("mutex: taken while held " + second.acquire(100, TimeUnit.MILLISECONDS));
        CountDownLatch taken = new CountDownLatch(1);
        Future<Boolean> waiting = threads.submit(() -> {
            boolean acquired = second.acquire(Curator.WAIT_S_MAX, TimeUnit.SECONDS);
            taken.countDown();
            second.release();
            return acquired;
        });
        while (first.getParticipantNodes().size() < 2) {
            Thread.sleep(5);
        }
        first.release();
        Curator.say("mutex: passed on after one of two releases " + taken.await(50, TimeUnit.MILLISECONDS));
        first.release();
        Curator.say("mutex: passed on " + waiting.get(Curator.WAIT_S_MAX, TimeUnit.SECONDS));
        InterProcessMutex[] locks = {new InterProcessMutex(one, "/count"), new InterProcessMutex(two,
                "/count")};
        int[] count = new int[1];
        List<Future<?>> working = new ArrayList<>();
        for (int worker = 0; worker < 6; worker++) {
            InterProcessMutex lock = locks[worker % 2];
            working.add(threads.submit(() -> {
                for (int step = 0; step < 10; step++) {
                    lock.acquire();
                    int before = count[0];
                    Thread.yield();
                    count[0] = before + 1;
                    lock.release();
                }
                return null;
            }));
        }
        for (Future<?> each : working) {
            each.get(Curator.WAIT_S_MAX, TimeUnit.SECONDS);
        }
        Curator.say("mutex: counted " + count[0]);
    }

    private void readWriteLock() throws Exception {
        InterProcessReadWriteLock first = new InterProcessReadWriteLock(one, "/rw");
        InterProcessReadWriteLock second = new InterProcessReadWriteLock(two, "/rw");
        first.readLock().acquire();
        Curator.say("read-write: second reader "
                + second.readLock().acquire(Curator.WAIT_S_MAX, TimeUnit.SECONDS));
        second.readLock().release();
        Curator.say("read-write: writer beside a reader "
                + second.writeLock().acquire(100, TimeUnit.MILLISECONDS));
        first.readLock().release();
        Curator.say("read-write: writer alone "
                + second.writeLock().acquire(Curator.WAIT_S_MAX, TimeUnit.SECONDS));
        Curator.say("read-write: writer reads, too "
                + second.readLock().acquire(Curator.WAIT_S_MAX, TimeUnit.SECONDS));
        Curator.say("read-write: reader beside a writer "
                + first.readLock().acquire(100, TimeUnit.MILLISECONDS));
        second.writeLock().release();
        Curator.say("read-write: reader after the writer "
                + first.readLock().acquire(Curator.WAIT_S_MAX, TimeUnit.SECONDS));
        first.readLock().release();
        second.readLock().release();
    }

    private void semaphores() throws Exception {
        InterProcessSemaphoreV2 first = new InterProcessSemaphoreV2(one, "/semaphore", 3);
        InterProcessSemaphoreV2 second = new InterProcessSemaphoreV2(two, "/semaphore", 3);
        Collection<Lease> two = first.acquire(2);
        Lease third = second.acquire();
        Curator.say("semaphore: a fourth of three " + (second.acquire(100, TimeUnit.MILLISECONDS) != null));
        first.returnAll(two);
        Collection<Lease> again = second.acquire(2, Curator.WAIT_S_MAX, TimeUnit.SECONDS);
        Curator.say("semaphore: what was given back " + again.size());
        second.returnAll(again);
        second.returnLease(third);
        InterProcessSemaphoreMutex mutex = new InterProcessSemaphoreMutex(one, "/semaphore-mutex");
        mutex.acquire();
        Curator.say("semaphore: not even the holder twice " + mutex.acquire(100, TimeUnit.MILLISECONDS));
        mutex.release();
    }

    // -- leaders -------------------------------------------------------------------------------

    private void latch() throws Exception {
        LeaderLatch first = new LeaderLatch(one, "/latch", "first");
        LeaderLatch second = new LeaderLatch(two, "/latch", "second");
        first.start();
        first.await(Curator.WAIT_S_MAX, TimeUnit.SECONDS);
        second.start();
        while (first.getParticipants().size() < 2) {
            Thread.sleep(5);
        }
        Curator.say("latch: " + first.hasLeadership() + " " + second.hasLeadership() + " "
                + second.getLeader().getId());
        first.close();
        Curator.say("latch: next " + second.await(Curator.WAIT_S_MAX, TimeUnit.SECONDS) + " "
                + second.getLeader().getId());
        second.close();
    }

    private void selector() throws Exception {
        BlockingQueue<String> led = new LinkedBlockingQueue<>();
        CountDownLatch resign = new CountDownLatch(1);
        LeaderSelector first = selector(one, "first", led, resign);
        Curator.say("selector: " + Curator.next(led));
        LeaderSelector second = selector(two, "second", led, new CountDownLatch(0));
        while (first.getParticipants().size() < 2) {
            Thread.sleep(5);
        }
        Curator.say("selector: leader " + second.getLeader().getId() + ", others led " + led);
        resign.countDown();
        Curator.say("selector: next " + Curator.next(led));
        first.close();
        second.close();
    }

    private static LeaderSelector selector(
            CuratorFramework client, String id, BlockingQueue<String> led, CountDownLatch resign) {
        LeaderSelector selector = new LeaderSelector(client, "/selector",
                new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework leading) throws InterruptedException {
                led.add(id);
                resign.await(Curator.WAIT_S_MAX, TimeUnit.SECONDS);
            }
        });
        selector.setId(id);
        selector.start();
        return selector;
    }

    // -- barriers, counts ----------------------------------------------------------------------

    private void barriers() throws Exception {
        DistributedBarrier barrier = new DistributedBarrier(one, "/barrier");
        barrier.setBarrier();
        DistributedBarrier other = new DistributedBarrier(two, "/barrier");
        Curator.say("barrier: passed while set " + other.waitOnBarrier(100, TimeUnit.MILLISECONDS));
        Future<Boolean> waiting = threads.submit(() -> other.waitOnBarrier(Curator.WAIT_S_MAX,
                TimeUnit.SECONDS));
        barrier.removeBarrier();
        Curator.say("barrier: passed " + waiting.get(Curator.WAIT_S_MAX, TimeUnit.SECONDS));
        DistributedDoubleBarrier mine = new DistributedDoubleBarrier(one, "/double", 2);
        Curator.say("double barrier: alone " + mine.enter(100, TimeUnit.MILLISECONDS));
        DistributedDoubleBarrier left = new DistributedDoubleBarrier(one, "/double2", 2);
        DistributedDoubleBarrier right = new DistributedDoubleBarrier(two, "/double2", 2);
        Future<Boolean> entering = threads.submit(() -> left.enter(Curator.WAIT_S_MAX, TimeUnit.SECONDS));
        Curator.say("double barrier: together " + right.enter(Curator.WAIT_S_MAX, TimeUnit.SECONDS)
                + " " + entering.get(Curator.WAIT_S_MAX, TimeUnit.SECONDS));
        Future<Boolean> leaving = threads.submit(() -> left.leave(Curator.WAIT_S_MAX, TimeUnit.SECONDS));
        Curator.say("double barrier: left " + right.leave(Curator.WAIT_S_MAX, TimeUnit.SECONDS)
                + " " + leaving.get(Curator.WAIT_S_MAX, TimeUnit.SECONDS));
    }

    private void counts() throws Exception {
        SharedCount first = new SharedCount(one, "/shared-count", 7);
        SharedCount second = new SharedCount(two, "/shared-count", 0);
        first.start();
        second.start();
        CountDownLatch heard = new CountDownLatch(1);
        second.addListener(new SharedCountListener() {
            @Override
            public void countHasChanged(SharedCountReader count, int value) {
                heard.countDown();
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {}
        });
        VersionedValue<Integer> seven = first.getVersionedValue();
        Curator.say("shared count: " + second.getCount() + " set " + first.trySetCount(seven, 8));
        Curator.say("shared count: heard " + heard.await(Curator.WAIT_S_MAX, TimeUnit.SECONDS) + " "
                + second.getCount());
        Curator.say("shared count: set from a value that is past " + first.trySetCount(seven, 9));
        first.close();
        second.close();
        List<Future<?>> working = new ArrayList<>();
        for (CuratorFramework client : Arrays.asList(one, two, one, two)) {
            DistributedAtomicLong number = new DistributedAtomicLong(client, "/atomic", (tries, spent,
                    sleeper) -> true);
            working.add(threads.submit(() -> {
                for (int step = 0; step < 10; step++) {
                    AtomicValue<Long> value;
                    do {
                        value = number.increment();
                    } while (!value.succeeded());
                }
                return null;
            }));
        }
        for (Future<?> each : working) {
            each.get(Curator.WAIT_S_MAX, TimeUnit.SECONDS);
        }
        Curator.say("atomic: "
                + new DistributedAtomicLong(one, "/atomic", new RetryOneTime(1)).get().postValue());
    }
}

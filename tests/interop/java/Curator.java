import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryOneTime;

/** What the programs share: clients that are connected, and plain words about what they saw. */
final class Curator {
    static final int WAIT_S_MAX = 30;
    static final int CALM_MS = 30_000;
    static final int SHORT_MS = 2_000;

    private Curator() {}

    static CuratorFramework connect(String address, int timeoutMs) throws InterruptedException {
        CuratorFramework client = CuratorFrameworkFactory.builder()
                .connectString(address)
                .sessionTimeoutMs(timeoutMs)
                .retryPolicy(new RetryOneTime(100))
                .namespace("curator")
                .build();
        client.start();
        if (!client.blockUntilConnected(WAIT_S_MAX, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not connected to " + address);
        }
        return client;
    }

    static void say(String words) {
        System.out.println(words);
    }

    static String next(BlockingQueue<String> queue) throws InterruptedException {
        String item = queue.poll(WAIT_S_MAX, TimeUnit.SECONDS);
        return item == null ? "nothing came" : item;
    }

    static List<String> next(BlockingQueue<String> queue, int count) throws InterruptedException {
        List<String> items = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            items.add(next(queue));
        }
        return items;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] data) {
        return data == null ? "null" : new String(data, StandardCharsets.UTF_8);
    }
}

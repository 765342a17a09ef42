import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;

/** Runs Curator's recipes against the server named first, and prints a line for each that holds. */
public final class Recipes {
    private static String server;

    public static void main(String[] args) throws Exception {
        server = args[0];
        try (CuratorFramework a = client(); CuratorFramework b = client()) {
            a.create().creatingParentsIfNeeded().forPath("/curator/ready");
            mutex(a, b);
            System.out.println("mutex ok");
            latch(a, b);
            System.out.println("latch ok");
            caches(a, b);
            System.out.println("caches ok");
            persistent(a, b);
            System.out.println("persistent ok");
            transaction(a);
            System.out.println("transaction ok");
        }
        System.exit(0); // Curator leaves threads behind
    }

    private static CuratorFramework client() {
        CuratorFramework c = CuratorFrameworkFactory.newClient(server, 10_000, 10_000, new RetryOneTime(100));
        c.start();
        return c;
    }

    /** Two clients count under one lock: nobody is ever inside beside another. */
    private static void mutex(CuratorFramework a, CuratorFramework b) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        int[] count = {0};
        ExecutorService pool = Executors.newFixedThreadPool(2);
        Future<?>[] done = new Future<?>[2];
        for (int i = 0; i < 2; i++) {
            InterProcessMutex lock = new InterProcessMutex(i == 0 ? a : b, "/curator/lock");
            done[i] = pool.submit(() -> {
                for (int n = 0; n < 25; n++) {
                    must(lock.acquire(20, TimeUnit.SECONDS), "the lock is not to be had");
                    must(inside.incrementAndGet() == 1, "two are inside the lock");
                    count[0]++;
                    inside.decrementAndGet();
                    lock.release();
                }
                return null;
            });
        }
        for (Future<?> f : done) {
            f.get(60, TimeUnit.SECONDS);
        }
        pool.shutdown();
        must(count[0] == 50, "counted " + count[0] + " of 50");
    }

    /** The second leads once the first has gone, and not before. */
    private static void latch(CuratorFramework a, CuratorFramework b) throws Exception {
        LeaderLatch first = new LeaderLatch(a, "/curator/leader", "first");
        first.start();
        must(first.await(20, TimeUnit.SECONDS), "nobody leads");
        try (LeaderLatch second = new LeaderLatch(b, "/curator/leader", "second")) {
            second.start();
            until("both take part", () -> count(second) == 2);
            must(!second.hasLeadership(), "two lead");
            must(second.getLeader().getId().equals("first"), "somebody else leads");
            first.close();
            must(second.await(20, TimeUnit.SECONDS), "nobody leads after the first has gone");
        }
    }

    private static int count(LeaderLatch l) {
        try {
            return l.getParticipants().size();
        } catch (Exception e) {
            return -1;
        }
    }

    /**
     * Both kinds of cache end up with what is there. The one has a persistent recursive watch, the
     * other watches that fire once; in one session ZooKeeper before 3.9 loses the former to the latter.
     */
    private static void caches(CuratorFramework a, CuratorFramework b) throws Exception {
        Map<String, String> seen = new ConcurrentHashMap<>();
        CountDownLatch whole = new CountDownLatch(1);
        try (CuratorCache cache = CuratorCache.build(a, "/curator/tree"); TreeCache tree = TreeCache.newBuilder(b, "/curator/tree").build()) {
            cache.listenable().addListener(CuratorCacheListener.builder()
                    .forCreates(n -> seen.put(n.getPath(), text(n)))
                    .forChanges((old, n) -> seen.put(n.getPath(), text(n)))
                    .forDeletes(n -> seen.remove(n.getPath()))
                    .forInitialized(whole::countDown)
                    .build());
            b.create().forPath("/curator/tree", bytes("root"));
            cache.start();
            tree.start();
            must(whole.await(20, TimeUnit.SECONDS), "the cache is not filled");
            for (int i = 0; i < 20; i++) {
                b.create().creatingParentsIfNeeded().forPath("/curator/tree/" + i % 4 + "/" + i, bytes("v" + i));
            }
            for (int i = 0; i < 20; i += 2) {
                b.setData().forPath("/curator/tree/" + i % 4 + "/" + i, bytes("w" + i));
            }
            for (int i = 0; i < 20; i += 5) {
                b.delete().forPath("/curator/tree/" + i % 4 + "/" + i);
            }
            for (int i = 0; i < 20; i++) {
                String path = "/curator/tree/" + i % 4 + "/" + i;
                String want = i % 5 == 0 ? null : (i % 2 == 0 ? "w" : "v") + i;
                until("CuratorCache has " + want + " at " + path, () -> want == null ? !seen.containsKey(path) : want.equals(seen.get(path)));
                until("TreeCache has " + want + " at " + path, () -> {
                    ChildData n = tree.getCurrentData(path);
                    return want == null ? n == null : n != null && want.equals(text(n));
                });
            }
        }
    }

    /** A node that belongs to a session comes back when its session is lost, or it is deleted. */
    private static void persistent(CuratorFramework a, CuratorFramework b) throws Exception {
        try (PersistentNode node = new PersistentNode(a, CreateMode.EPHEMERAL, false, "/curator/mine", bytes("here"))) {
            node.start();
            must(node.waitForInitialCreate(20, TimeUnit.SECONDS), "the node is not made");
            must(b.checkExists().forPath("/curator/mine").getEphemeralOwner() == a.getZookeeperClient().getZooKeeper().getSessionId(), "it is somebody else's");
            b.delete().forPath("/curator/mine");
            until("the node is back", () -> exists(b, "/curator/mine"));
        }
        until("the node is gone", () -> !exists(b, "/curator/mine"));
    }

    private static boolean exists(CuratorFramework c, String path) {
        try {
            return c.checkExists().forPath(path) != null;
        } catch (Exception e) {
            return false;
        }
    }

    /** All of a transaction happens, or nothing. */
    private static void transaction(CuratorFramework a) throws Exception {
        List<CuratorTransactionResult> did = a.transaction().forOperations(
                a.transactionOp().create().forPath("/curator/tx", bytes("1")),
                a.transactionOp().create().forPath("/curator/tx/child"),
                a.transactionOp().setData().forPath("/curator/tx", bytes("2")),
                a.transactionOp().check().withVersion(1).forPath("/curator/tx"));
        must(did.size() == 4 && did.get(2).getResultStat().getVersion() == 1, "results " + did);
        try {
            a.transaction().forOperations(
                    a.transactionOp().delete().forPath("/curator/tx/child"),
                    a.transactionOp().setData().withVersion(7).forPath("/curator/tx", bytes("3")));
            must(false, "a transaction with a wrong version went through");
        } catch (KeeperException.BadVersionException e) {
            must(exists(a, "/curator/tx/child"), "half of a refused transaction happened");
        }
        must(new String(a.getData().forPath("/curator/tx"), StandardCharsets.UTF_8).equals("2"), "other data");
    }

    private static String text(ChildData n) {
        return new String(n.getData(), StandardCharsets.UTF_8);
    }

    private static byte[] bytes(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }

    private static void must(boolean holds, String otherwise) {
        if (!holds) {
            throw new IllegalStateException(otherwise);
        }
    }

    private static void until(String what, BooleanSupplier is) throws InterruptedException {
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20); !is.getAsBoolean(); Thread.sleep(5)) {
            must(System.nanoTime() < end, "still waiting: " + what);
        }
    }
}

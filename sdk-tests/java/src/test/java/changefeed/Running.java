package changefeed;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;

/** A processor in this process, and what it handled. */
final class Running implements AutoCloseable {
    static final String HOST = "h";

    final List<List<Dialect.Change>> batches = new CopyOnWriteArrayList<>();
    final ChangeFeedProcessor processor;
    private final Leases leases;

    /** Starts it and waits until it owns all leases and has read each range once: what is written now, arrives. */
    static Running start(
        Dialect dialect, CosmosAsyncContainer feed, CosmosAsyncContainer leaseContainer, Leases leases,
        ChangeFeedProcessorOptions options, int ranges, Consumer<List<Dialect.Change>> before) {
        Running running = new Running(dialect, feed, leaseContainer, leases, options, before);
        running.processor.start().block();
        leases.untilOwned(ranges, HOST);
        return running;
    }

    private Running(
        Dialect dialect, CosmosAsyncContainer feed, CosmosAsyncContainer leaseContainer, Leases leases,
        ChangeFeedProcessorOptions options, Consumer<List<Dialect.Change>> before) {
        this.leases = leases;
        this.processor = dialect.processor(HOST, feed, leaseContainer, options, changes -> {
            before.accept(changes);
            batches.add(changes);
        });
    }

    List<Dialect.Change> changes() {
        return batches.stream().flatMap(List::stream).toList();
    }

    List<Suite.Seen> seen() {
        return changes().stream().map(Dialect.Change::seen).toList();
    }

    /** Waits until that many changes were handled, then compares them one by one: nothing is lost or repeated. */
    void assertHandled(List<Suite.Seen> written) {
        Leases.until(this::seen, seen -> seen.size() >= written.size());
        Suite.assertArrived(written, seen());
    }

    /** Stops it and waits until its leases are free: `stop` itself does not wait. */
    @Override
    public void close() {
        if (processor.isStarted()) {
            processor.stop().block();
            leases.untilFree();
        }
    }
}

package changefeed;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.models.ChangeFeedProcessorItem;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.List;
import java.util.function.Consumer;

/** Java's three processors. The first keeps leases by range id, the others by range of hashes. */
enum Dialect {
    CHANGES,
    LATEST_VERSIONS,
    ALL_VERSIONS;

    /** When the lease of a host that died is anybody's. */
    static final Duration EXPIRATION = Duration.ofSeconds(7);

    /** A change as a delegate got it, whatever the dialect. */
    record Change(String operation, String id, String key, int value, long lsn) {
        Suite.Seen seen() {
            return new Suite.Seen(id, key, value);
        }

        private static Change of(JsonNode item) {
            Suite.Seen seen = Suite.Seen.of(item);
            return new Change("", seen.id(), seen.key(), seen.value(), item.get("_lsn").asLong());
        }

        private static Change of(ChangeFeedProcessorItem item) {
            var metadata = item.getChangeFeedMetaData();
            String operation =
                metadata.getOperationType() == null ? "" : metadata.getOperationType().toString().toLowerCase();
            boolean deleted = operation.equals("delete");
            Suite.Seen seen = Suite.Seen.of(deleted ? item.getPrevious() : item.getCurrent());
            return new Change(operation, seen.id(), seen.key(), seen.value(), metadata.getLogSequenceNumber());
        }
    }

    /** The container that tests with hosts read in this dialect. */
    String feed() {
        return name().toLowerCase();
    }

    String leases() {
        return feed() + "-leases";
    }

    ChangeFeedProcessor processor(
        String host, CosmosAsyncContainer feed, CosmosAsyncContainer leases, ChangeFeedProcessorOptions options,
        Consumer<List<Change>> delegate) {
        ChangeFeedProcessorBuilder builder = new ChangeFeedProcessorBuilder()
            .hostName(host).feedContainer(feed).leaseContainer(leases).options(options);
        switch (this) {
            case CHANGES -> builder.handleChanges(items -> delegate.accept(items.stream().map(Change::of).toList()));
            case LATEST_VERSIONS ->
                builder.handleLatestVersionChanges(items -> delegate.accept(items.stream().map(Change::of).toList()));
            case ALL_VERSIONS -> builder.handleAllVersionsAndDeletesChanges(
                (items, context) -> delegate.accept(items.stream().map(Change::of).toList()));
        }
        return builder.buildChangeFeedProcessor();
    }

    /** Everything faster than by default, in the same proportions. */
    ChangeFeedProcessorOptions options(String prefix) {
        ChangeFeedProcessorOptions options = new ChangeFeedProcessorOptions()
            .setLeasePrefix(prefix)
            .setLeaseAcquireInterval(Duration.ofSeconds(1))
            .setLeaseRenewInterval(Duration.ofSeconds(2))
            .setLeaseExpirationInterval(EXPIRATION)
            .setFeedPollDelay(Duration.ofMillis(200))
            .setMaxItemCount(10);
        return this == ALL_VERSIONS ? options : options.setStartFromBeginning(true);
    }
}

package changefeed;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Set;
import java.util.function.Predicate;
import java.util.function.Supplier;
import java.util.stream.Collectors;

/** The lease documents that processors keep, and waiting for a state of them. */
record Leases(CosmosContainer container) {
    /** All leases, without markers and locks, by their token. */
    List<JsonNode> all() {
        return query("SELECT * FROM c WHERE IS_DEFINED(c.LeaseToken) ORDER BY c.LeaseToken", JsonNode.class);
    }

    /** The ids of everything in the container. */
    List<String> ids() {
        return query("SELECT VALUE c.id FROM c ORDER BY c.id", String.class);
    }

    private <T> List<T> query(String sql, Class<T> type) {
        return container.queryItems(sql, new CosmosQueryRequestOptions(), type).stream().toList();
    }

    static String owner(JsonNode lease) {
        return lease.get("Owner").asText("");
    }

    /** Waits until that many leases are all owned by these hosts, each of which owns some, and have a continuation. */
    List<JsonNode> untilOwned(int count, String... hosts) {
        return until(this::all, leases -> leases.size() == count
            && leases.stream().allMatch(lease -> lease.get("ContinuationToken").isTextual())
            && leases.stream().map(Leases::owner).collect(Collectors.toSet()).equals(Set.of(hosts)));
    }

    /**
     * Waits until nobody owns a lease, or its owner let it expire. The SDK can put an owner back: if the server refuses
     * a checkpoint because the same host has just released the lease, it sends the checkpoint again, owner and all,
     * under the new etag.
     */
    List<JsonNode> untilFree() {
        return until(
            this::all, leases -> leases.stream().allMatch(lease -> owner(lease).isEmpty() || isExpired(lease)));
    }

    private static boolean isExpired(JsonNode lease) {
        return Instant.parse(lease.get("timestamp").asText()).plus(Dialect.EXPIRATION).isBefore(Instant.now());
    }

    /** Asks again until the answer is right; fails with the last one. The limit is long: shared machines are slow. */
    static <T> T until(Supplier<T> ask, Predicate<T> right) {
        Instant deadline = Instant.now().plus(Duration.ofSeconds(90));
        while (true) {
            T answer = ask.get();
            if (right.test(answer)) {
                return answer;
            }
            if (Instant.now().isAfter(deadline)) {
                throw new AssertionError("still after a minute and a half: " + answer);
            }
            try {
                Thread.sleep(100);
            } catch (InterruptedException error) {
                throw new AssertionError(error);
            }
        }
    }
}

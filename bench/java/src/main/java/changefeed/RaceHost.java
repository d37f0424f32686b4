package changefeed;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.ConsistencyLevel;
import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.models.ChangeFeedProcessorItem;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;

/**
 * A host of the race, driven by lines on stdin: {@code start key=value ...}, {@code go}, {@code stop}, {@code quit}. The
 * Rust host of crates/bench understands the same lines and does the same work for each change.
 */
public final class RaceHost {
    private static final String KEY =
        "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

    /** A processor that runs, with what its delegate needs. */
    private static final class Lap {
        final CountDownLatch gate;
        final OutputStream ledger;
        long seen;
        long sum;
        ChangeFeedProcessor processor;

        Lap(boolean gated, String ledger) throws IOException {
            this.gate = new CountDownLatch(gated ? 1 : 0);
            this.ledger = new FileOutputStream(ledger, true);
        }

        /**
         * The work of the race: takes three members of each item and appends the batch to the ledger, in one write. When
         * this returns the line is with the operating system: a process that is killed afterwards does not take it along.
         */
        void handle(List<JsonNode> items) {
            try {
                gate.await();
                Instant now = Instant.now();
                StringBuilder line = new StringBuilder(32 + items.size() * 16);
                line.append(now.getEpochSecond() * 1_000_000 + now.getNano() / 1000);
                long numbers = 0;
                for (JsonNode item : items) {
                    if (item.get("customer").asText().isEmpty()) {
                        throw new IllegalStateException("an item without customer");
                    }
                    line.append(' ').append(item.get("id").asText());
                    numbers += item.get("number").asLong();
                }
                byte[] bytes = line.append('\n').toString().getBytes(StandardCharsets.UTF_8);
                synchronized (this) {
                    ledger.write(bytes);
                    seen += items.size();
                    sum += numbers;
                    say("seen " + seen + " " + sum);
                }
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static CosmosAsyncClient client(String endpoint) {
        return new CosmosClientBuilder()
            .endpoint(endpoint)
            .key(KEY)
            .gatewayMode()
            .consistencyLevel(ConsistencyLevel.SESSION)
            .contentResponseOnWriteEnabled(true)
            .buildAsyncClient();
    }

    private static CosmosAsyncContainer container(CosmosAsyncClient client, String name) {
        String[] parts = name.split("/");
        return client.getDatabase(parts[0]).getContainer(parts[1]);
    }

    private static Lap start(
        CosmosAsyncClient feed, CosmosAsyncClient leases, String instance, Map<String, String> given)
        throws IOException {
        Lap lap = new Lap(given.get("gate").equals("1"), given.get("ledger"));
        ChangeFeedProcessorOptions options = new ChangeFeedProcessorOptions()
            .setLeasePrefix(given.get("name"))
            .setLeaseAcquireInterval(millis(given, "acquire_ms"))
            .setLeaseRenewInterval(millis(given, "renew_ms"))
            .setLeaseExpirationInterval(millis(given, "expiration_ms"))
            .setFeedPollDelay(millis(given, "poll_ms"))
            .setMaxItemCount(Integer.parseInt(given.get("max_items")))
            .setMaxScaleCount(Integer.parseInt(given.get("max_leases")))
            .setStartFromBeginning(given.get("from").equals("beginning"));
        ChangeFeedProcessorBuilder builder = new ChangeFeedProcessorBuilder()
            .hostName(instance)
            .feedContainer(container(feed, given.get("container")))
            .leaseContainer(container(leases, given.get("leases")))
            .options(options);
        if (given.get("dialect").equals("latest")) {
            builder.handleLatestVersionChanges(
                items -> lap.handle(items.stream().map(ChangeFeedProcessorItem::getCurrent).toList()));
        } else {
            builder.handleChanges(lap::handle);
        }
        lap.processor = builder.buildChangeFeedProcessor();
        lap.processor.start().block();
        return lap;
    }

    private static Duration millis(Map<String, String> given, String name) {
        return Duration.ofMillis(Long.parseLong(given.get(name)));
    }

    /** Arguments: the endpoint of the server, that of the server with the leases, and the instance name. */
    public static void main(String[] arguments) throws Exception {
        CosmosAsyncClient feed = client(arguments[0]);
        CosmosAsyncClient leases = arguments[1].equals(arguments[0]) ? feed : client(arguments[1]);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Lap lap = null;
        say("ready");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "start" -> {
                    Map<String, String> given = new HashMap<>();
                    for (String word : List.of(words).subList(1, words.length)) {
                        given.put(word.substring(0, word.indexOf('=')), word.substring(word.indexOf('=') + 1));
                    }
                    lap = start(feed, leases, arguments[2], given);
                    say("started");
                }
                case "go" -> lap.gate.countDown();
                case "stop" -> {
                    lap.processor.stop().block();
                    say("stopped");
                }
                default -> System.exit(line.equals("quit") ? 0 : 2);
            }
        }
        System.exit(0);
    }
}

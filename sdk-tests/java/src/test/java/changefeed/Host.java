package changefeed;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosAsyncDatabase;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;

/**
 * A process of its own with a processor of each dialect. It prints each batch as a line of JSON before the batch counts
 * as handled.
 */
final class Host implements AutoCloseable {
    /** A batch that a host printed, and when. */
    record Batch(Dialect dialect, long micros, List<Dialect.Change> changes) {}

    final String name;
    private final List<Batch> batches = new CopyOnWriteArrayList<>();
    private final Process process;
    private final Thread reader;

    private Host(String name, Process process) {
        this.name = name;
        this.process = process;
        this.reader = new Thread(this::read, "output of " + name);
        reader.setDaemon(true);
        reader.start();
    }

    static Host start(String name, String database) throws IOException {
        List<String> command = new ArrayList<>(List.of(
            ProcessHandle.current().info().command().orElse("java"), "-Xmx256m", "-XX:TieredStopAtLevel=1",
            "-cp", System.getProperty("java.class.path")));
        for (String property : List.of("COSMOS.HTTP_CONNECTION_WITHOUT_TLS_ALLOWED", "COSMOS.DISABLE_IMDS_ACCESS")) {
            command.add("-D" + property + "=" + System.getProperty(property));
        }
        command.addAll(List.of(Host.class.getName(), name, database));
        return new Host(name, new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start());
    }

    List<Batch> batches(Dialect dialect) {
        return batches.stream().filter(batch -> batch.dialect() == dialect).toList();
    }

    private void read() {
        try (BufferedReader output = process.inputReader(StandardCharsets.UTF_8)) {
            for (String line = output.readLine(); line != null; line = output.readLine()) {
                JsonNode json = Server.JSON.readTree(line);
                List<Dialect.Change> changes = new ArrayList<>();
                for (JsonNode change : json.get("changes")) {
                    changes.add(Server.JSON.treeToValue(change, Dialect.Change.class));
                }
                Dialect dialect = Dialect.valueOf(json.get("dialect").asText());
                batches.add(new Batch(dialect, json.get("micros").asLong(), changes));
            }
        } catch (IOException error) {
            // The last line of a killed host may be cut off: that batch was not handled, for the processor neither.
        }
    }

    /** Ends the process with SIGKILL: it has no chance to release anything. Then all that it printed has been read. */
    void kill() throws InterruptedException {
        process.destroyForcibly();
        process.waitFor();
        reader.join();
    }

    /** Lets the host stop in good order and release its leases. */
    void stop() throws IOException, InterruptedException {
        process.getOutputStream().close();
        if (!process.waitFor(60, TimeUnit.SECONDS)) {
            throw new AssertionError(name + " does not stop");
        }
    }

    @Override
    public void close() {
        process.destroyForcibly();
    }

    /** Arguments: the host's name and the database; containers are named by the dialect. Runs until its input ends. */
    public static void main(String[] arguments) throws Exception {
        CosmosAsyncClient client = Server.SHARED.client().buildAsyncClient();
        CosmosAsyncDatabase database = client.getDatabase(arguments[1]);
        List<ChangeFeedProcessor> processors = new ArrayList<>();
        for (Dialect dialect : Dialect.values()) {
            ChangeFeedProcessor processor = dialect.processor(
                arguments[0], database.getContainer(dialect.feed()), database.getContainer(dialect.leases()),
                dialect.options("hosts-"), changes -> print(dialect, changes));
            processors.add(processor);
            processor.start().block();
        }
        while (System.in.read() >= 0) {
            // Until the test closes the pipe, or dies.
        }
        for (ChangeFeedProcessor processor : processors) {
            processor.stop().block();
        }
        // `stop` returns before the leases are released, and nothing tells when they are.
        Thread.sleep(1000);
        System.exit(0);
    }

    private static synchronized void print(Dialect dialect, List<Dialect.Change> changes) {
        var line = Server.JSON.createObjectNode().put("dialect", dialect.name())
            .put("micros", ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now()));
        line.set("changes", Server.JSON.valueToTree(changes));
        System.out.println(line);
        System.out.flush();
    }
}

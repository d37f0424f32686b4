package changefeed;

import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.ConsistencyLevel;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/** A `changefeed serve` under test, and the command line that splits and merges its ranges. */
final class Server implements AutoCloseable {
    /** The public key of the emulator: it protects nothing. */
    static final String KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

    static final ObjectMapper JSON = new ObjectMapper();

    /** The server that `run` started: new containers begin with two ranges. */
    static final Server SHARED = new Server(variable("COSMOS_ENDPOINT"), null);

    final String endpoint;
    private final Process process;

    private Server(String endpoint, Process process) {
        this.endpoint = endpoint;
        this.process = process;
    }

    /** Starts another server, in memory and on a free port. */
    static Server start(String... more) throws IOException {
        List<String> command = new ArrayList<>(
            List.of(variable("CHANGEFEED_BIN"), "serve", "--store", "memory", "--listen", "127.0.0.1:0",
                "--previous-images"));
        command.addAll(List.of(more));
        Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        BufferedReader output = process.inputReader(StandardCharsets.UTF_8);
        JsonNode ready = JSON.readTree(Objects.requireNonNull(output.readLine(), "the server ended at once"));
        return new Server(ready.get("endpoint").asText(), process);
    }

    /** What every client of this suite has in common. The endpoint is discovered, as it is by default. */
    CosmosClientBuilder client() {
        return new CosmosClientBuilder()
            .endpoint(endpoint)
            .key(KEY)
            .gatewayMode()
            .consistencyLevel(ConsistencyLevel.SESSION)
            .contentResponseOnWriteEnabled(true);
    }

    record Range(String id, String min, String max, List<String> parents) {
        private static Range of(JsonNode json) {
            List<String> parents = elements(json.get("parents")).map(JsonNode::asText).toList();
            return new Range(json.get("id").asText(), json.get("min").asText(), json.get("max").asText(), parents);
        }
    }

    List<Range> ranges(String container) {
        return command(container, "ranges");
    }

    /** Splits a range in the middle; answers with its children. */
    List<Range> split(String container, String range) {
        return command(container, "split", "--range", range);
    }

    /** Merges two neighbours; answers with the one range that takes their place. */
    Range merge(String container, Range left, Range right) {
        return command(container, "merge", "--ranges", left.id() + "," + right.id()).get(0);
    }

    /** Lets the server answer 429 to everything about the items of a container for a while. */
    void throttle(String container, int seconds) {
        call(List.of("throttle", "--container", container, "--seconds", String.valueOf(seconds)));
    }

    private List<Range> command(String container, String name, String... more) {
        List<String> command = new ArrayList<>(List.of(name, "--container", container, "--json"));
        command.addAll(List.of(more));
        try {
            return elements(JSON.readTree(call(command))).map(Range::of).toList();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private byte[] call(List<String> arguments) {
        List<String> command = new ArrayList<>(List.of(variable("CHANGEFEED_BIN")));
        command.addAll(arguments);
        command.addAll(List.of("--store", endpoint));
        try {
            Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            byte[] output = process.getInputStream().readAllBytes();
            if (process.waitFor() != 0) {
                throw new AssertionError(command + " ended with " + process.exitValue());
            }
            return output;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException error) {
            throw new AssertionError(error);
        }
    }

    @Override
    public void close() {
        if (process != null) {
            process.destroy();
        }
    }

    static Stream<JsonNode> elements(JsonNode array) {
        return StreamSupport.stream(array.spliterator(), false);
    }

    static String variable(String name) {
        return Objects.requireNonNull(System.getenv(name), () -> name + " is not set: start the tests with ./run");
    }
}

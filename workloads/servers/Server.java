// Server PORT: answers every HTTP request with a short text. One of the servers of measurements/communication.toml.
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Executors;

final class Server {
    public static void main(String[] arguments) throws IOException {
        // Else the kernel holds the second part of each answer back for 40 ms.
        System.setProperty("sun.net.httpserver.nodelay", "true");
        byte[] text = "Hello, world!\n".getBytes(StandardCharsets.US_ASCII);
        var server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 0);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> {
            exchange.sendResponseHeaders(200, text.length);
            try (var body = exchange.getResponseBody()) {
                body.write(text);
            }
        });
        server.start();
    }
}

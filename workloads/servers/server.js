// server.js PORT: answers every HTTP request with a short text. One of the servers of measurements/communication.toml.
const server = require("node:http").createServer((_, answer) => answer.end("Hello, world!\n"));
server.listen(Number(process.argv[2]), "127.0.0.1");

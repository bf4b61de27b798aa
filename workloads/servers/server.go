// server PORT: answers every HTTP request with a short text. One of the servers of measurements/communication.toml.
package main

import (
	"io"
	"log"
	"net/http"
	"os"
)

func main() {
	answer := func(to http.ResponseWriter, _ *http.Request) { io.WriteString(to, "Hello, world!\n") }
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], http.HandlerFunc(answer)))
}

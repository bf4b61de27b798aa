// load PORT CLIENTS SECONDS: each client has one connection, sends an HTTP request, waits for the answer, and so on. Prints
// requests a second and the 99th percentile of their latency in microseconds. Begins when the server answers.
package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"
)

var request = []byte("GET / HTTP/1.1\r\nHost: here\r\n\r\n")

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// connect waits for the server for ten seconds.
func connect(address string) net.Conn {
	for range 1000 {
		if connection, err := net.Dial("tcp", address); err == nil {
			return connection
		}
		time.Sleep(10 * time.Millisecond)
	}
	log.Fatal("no server on ", address)
	return nil
}

// client sends requests until a time and returns their latencies.
func client(address string, until time.Time, done chan<- []time.Duration) {
	connection := connect(address)
	answers := bufio.NewReader(connection)
	var latencies []time.Duration
	for {
		begun := time.Now()
		if begun.After(until) {
			done <- latencies
			return
		}
		_, err := connection.Write(request)
		check(err)
		answer, err := http.ReadResponse(answers, nil)
		check(err)
		_, err = io.Copy(io.Discard, answer.Body)
		check(err)
		latencies = append(latencies, time.Since(begun))
	}
}

func main() {
	address := "127.0.0.1:" + os.Args[1]
	clients, err := strconv.Atoi(os.Args[2])
	check(err)
	seconds, err := strconv.Atoi(os.Args[3])
	check(err)
	connect(address).Close()
	length := time.Duration(seconds) * time.Second
	done := make(chan []time.Duration)
	until := time.Now().Add(length)
	for range clients {
		go client(address, until, done)
	}
	var latencies []time.Duration
	for range clients {
		latencies = append(latencies, <-done...)
	}
	slices.Sort(latencies)
	fmt.Printf("rate: %.0f\np99: %d\n", float64(len(latencies))/length.Seconds(), latencies[len(latencies)*99/100].Microseconds())
}

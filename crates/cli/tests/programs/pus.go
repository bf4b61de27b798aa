// Says how many PUs the runtime uses at the start, and after it has counted them again.
package main

import (
	"fmt"
	"runtime"
	"time"
)

func main() {
	before := runtime.GOMAXPROCS(0)
	done := make(chan bool)
	for i := 0; i < 2; i++ {
		go func() {
			end := time.Now().Add(3 * time.Second)
			for time.Now().Before(end) {
			}
			done <- true
		}()
	}
	<-done
	<-done
	fmt.Println(before, runtime.GOMAXPROCS(0))
}

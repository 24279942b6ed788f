// mgo, the Go driver of 2010 to 2018, in its last release, as the orders of a shop use it.
package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/globalsign/mgo"
)

func main() {
	session, err := mgo.DialWithTimeout(os.Getenv("FROND_URI"), 10*time.Second)
	if err != nil {
		fmt.Println("not ok 1 -", err)
		os.Exit(1)
	}
	tests := slices.Concat(orders, around)
	if slices.Contains(os.Args[1:], "replica-set") {
		tests = watching
	}
	code := runAll(session, tests)
	session.Close()
	os.Exit(code)
}

package main

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"strings"

	"github.com/globalsign/mgo"
)

// A test gets an empty database, of a session of its own.
type test struct {
	name string
	body func(db *mgo.Database)
}

// problem is the panic value of a failed check.
type problem string

func must(err error) {
	if err != nil {
		panic(problem(fmt.Sprintf("%T: %v", err, err)))
	}
}

// get returns the value of a call that must not fail.
func get[T any](value T, err error) T {
	must(err)
	return value
}

func equal(got, expected any) {
	if !reflect.DeepEqual(got, expected) {
		panic(problem(fmt.Sprintf("got %#v, expected %#v", got, expected)))
	}
}

func isTrue(ok bool, what string) {
	if !ok {
		panic(problem(what))
	}
}

// explain prints an error, and its stack frames in these files.
func explain(found any) {
	fmt.Printf("  # %v\n", found)
	for _, line := range bytes.Split(debug.Stack(), []byte("\n")) {
		if text := strings.TrimSpace(string(line)); strings.Contains(text, "suites/mgo/") && !strings.Contains(text, "tap.go") {
			fmt.Printf("  #   %s\n", text)
		}
	}
}

func (t test) run(session *mgo.Session, number int) (good bool) {
	session = session.Copy()
	defer session.Close()
	defer func() {
		if found := recover(); found != nil {
			fmt.Printf("not ok %d - %s\n", number, t.name)
			explain(found)
			good = false
		}
	}()
	db := session.DB("mgo")
	must(db.DropDatabase())
	session.ResetIndexCache()
	t.body(db)
	fmt.Printf("ok %d - %s\n", number, t.name)
	return true
}

// runAll prints TAP and returns the exit code.
func runAll(session *mgo.Session, tests []test) int {
	count, failed := 0, 0
	for _, t := range tests {
		if !strings.Contains(t.name, os.Getenv("FROND_TEST")) {
			continue
		}
		count++
		if !t.run(session, count) {
			failed++
		}
	}
	fmt.Printf("1..%d\n", count)
	if failed > 0 || count == 0 {
		return 1
	}
	return 0
}

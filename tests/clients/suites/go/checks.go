// Checks and their output, for all programs of tests in Go: the others, modules of their own, link to this file.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
)

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

// as returns the error, which must be of this kind.
func as[E error](err error) E {
	var found E
	if !errors.As(err, &found) {
		panic(problem(fmt.Sprintf("got %T %v, expected %T", err, err, found)))
	}
	return found
}

// explain prints an error, and its stack frames in the files of tests.
func explain(found any) {
	fmt.Printf("  # %v\n", found)
	for _, line := range bytes.Split(debug.Stack(), []byte("\n")) {
		text := strings.TrimSpace(string(line))
		isHelper := strings.Contains(text, "/checks.go") || strings.Contains(text, "/tap.go")
		if strings.Contains(text, "clients/suites/") && !isHelper {
			fmt.Printf("  #   %s\n", text)
		}
	}
}

// report runs a test and prints its line of TAP.
func report(number int, name string, body func()) (good bool) {
	defer func() {
		if found := recover(); found != nil {
			fmt.Printf("not ok %d - %s\n", number, name)
			explain(found)
			good = false
		}
	}()
	body()
	fmt.Printf("ok %d - %s\n", number, name)
	return true
}

// A test of one program, with the client that it takes.
type runnable[C any] interface {
	title() string
	run(client C, number int) bool
}

// runAll prints TAP and returns the exit code.
func runAll[C any, T runnable[C]](client C, tests []T) int {
	count, failed := 0, 0
	for _, t := range tests {
		if !strings.Contains(t.title(), os.Getenv("FROND_TEST")) {
			continue
		}
		count++
		if !t.run(client, count) {
			failed++
		}
	}
	fmt.Printf("1..%d\n", count)
	if failed > 0 || count == 0 {
		return 1
	}
	return 0
}

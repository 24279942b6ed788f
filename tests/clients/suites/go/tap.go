package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// patience is longer than any test takes, even on a busy machine. It guards against a test that hangs; no test may depend on it.
const patience = 3 * time.Minute

// A test gets an empty database.
type test struct {
	name string
	body func(ctx context.Context, db *mongo.Database)
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

// as returns the error, which must be of this kind.
func as[E error](err error) E {
	var found E
	if !errors.As(err, &found) {
		panic(problem(fmt.Sprintf("got %T %v, expected %T", err, err, found)))
	}
	return found
}

// explain prints an error, and its stack frames in these files.
func explain(found any) {
	fmt.Printf("  # %v\n", found)
	for _, line := range bytes.Split(debug.Stack(), []byte("\n")) {
		if text := strings.TrimSpace(string(line)); strings.Contains(text, "suites/go/") && !strings.Contains(text, "tap.go") {
			fmt.Printf("  #   %s\n", text)
		}
	}
}

func (t test) run(client *mongo.Client, number int) (good bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	defer func() {
		if found := recover(); found != nil {
			fmt.Printf("not ok %d - %s\n", number, t.name)
			explain(found)
			good = false
		}
	}()
	db := client.Database("go")
	must(db.Drop(ctx))
	t.body(ctx, db)
	fmt.Printf("ok %d - %s\n", number, t.name)
	return true
}

// runAll prints TAP and returns the exit code.
func runAll(client *mongo.Client, tests []test) int {
	count, failed := 0, 0
	for _, t := range tests {
		if !strings.Contains(t.name, os.Getenv("FROND_TEST")) {
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

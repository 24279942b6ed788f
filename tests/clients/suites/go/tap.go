package main

import (
	"context"
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

func (t test) title() string { return t.name }

func (t test) run(client *mongo.Client, number int) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return report(number, t.name, func() {
		db := client.Database("go")
		must(db.Drop(ctx))
		t.body(ctx, db)
	})
}

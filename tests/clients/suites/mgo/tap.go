package main

import "github.com/globalsign/mgo"

// A test gets an empty database, of a session of its own.
type test struct {
	name string
	body func(db *mgo.Database)
}

func (t test) title() string { return t.name }

func (t test) run(session *mgo.Session, number int) bool {
	session = session.Copy()
	defer session.Close()
	return report(number, t.name, func() {
		db := session.DB("mgo")
		must(db.DropDatabase())
		session.ResetIndexCache()
		t.body(db)
	})
}

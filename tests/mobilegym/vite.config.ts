// A build tool would read its settings here; the tests have one of their own.

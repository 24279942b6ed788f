//! An embedded, ordered, transactional byte store whose trees are Fractal Trees (B-epsilon trees).

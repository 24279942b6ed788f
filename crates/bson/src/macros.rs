//! The `doc!` macro.

/// Builds a [`DocBuf`](crate::DocBuf) from a literal; values are expressions, `{…}`, `[…]` or `null`.
///
/// ```
/// use frond_bson::doc;
/// let limit = 3i64;
/// let d = doc! {"a": 1, "b": "x", "c": {"nested": true}, "d": [1, limit, {"e": null}]};
/// assert_eq!(format!("{d:?}"), r#"{"a":1,"b":"x","c":{"nested":true},"d":[1,3,{"e":null}]}"#);
/// ```
#[macro_export]
macro_rules! doc {
    ($($inner:tt)*) => {{
        #[allow(unused_mut)]
        let mut doc = $crate::DocBuf::new();
        $crate::doc_inner!(@doc doc $($inner)*);
        doc
    }};
}

/// Builds an [`ArrayBuf`](crate::ArrayBuf) from a literal: `array![1, "x", {"a": 1}]`.
#[macro_export]
macro_rules! array {
    ($($inner:tt)*) => {{
        #[allow(unused_mut)]
        let mut array = $crate::ArrayBuf::new();
        $crate::doc_inner!(@array array $($inner)*);
        array
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! doc_inner {
    (@doc $w:ident $(,)?) => {};
    (@doc $w:ident $key:tt : { $($inner:tt)* } $(, $($rest:tt)*)?) => {
        let mark = $w.open(::core::convert::AsRef::<str>::as_ref(&$key), $crate::tag::DOCUMENT);
        $crate::doc_inner!(@doc $w $($inner)*);
        $w.close(mark);
        $crate::doc_inner!(@doc $w $($($rest)*)?);
    };
    (@doc $w:ident $key:tt : [ $($inner:tt)* ] $(, $($rest:tt)*)?) => {
        let inner = $crate::array![$($inner)*];
        $w.push_value(::core::convert::AsRef::<str>::as_ref(&$key), &inner.as_value());
        $crate::doc_inner!(@doc $w $($($rest)*)?);
    };
    (@doc $w:ident $key:tt : null $(, $($rest:tt)*)?) => {
        $w.push_value(::core::convert::AsRef::<str>::as_ref(&$key), &$crate::Value::Null);
        $crate::doc_inner!(@doc $w $($($rest)*)?);
    };
    (@doc $w:ident $key:tt : $value:expr $(, $($rest:tt)*)?) => {
        $w.push_value(
            ::core::convert::AsRef::<str>::as_ref(&$key),
            &$crate::ToValue::to_value(&$value),
        );
        $crate::doc_inner!(@doc $w $($($rest)*)?);
    };
    (@array $w:ident $(,)?) => {};
    (@array $w:ident { $($inner:tt)* } $(, $($rest:tt)*)?) => {
        let inner = $crate::doc! { $($inner)* };
        $w.push_value(&$crate::Value::Document(&inner));
        $crate::doc_inner!(@array $w $($($rest)*)?);
    };
    (@array $w:ident [ $($inner:tt)* ] $(, $($rest:tt)*)?) => {
        let inner = $crate::array![$($inner)*];
        $w.push_value(&inner.as_value());
        $crate::doc_inner!(@array $w $($($rest)*)?);
    };
    (@array $w:ident null $(, $($rest:tt)*)?) => {
        $w.push_value(&$crate::Value::Null);
        $crate::doc_inner!(@array $w $($($rest)*)?);
    };
    (@array $w:ident $value:expr $(, $($rest:tt)*)?) => {
        $w.push_value(&$crate::ToValue::to_value(&$value));
        $crate::doc_inner!(@array $w $($($rest)*)?);
    };
}

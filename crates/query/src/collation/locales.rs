//! The locales that MongoDB supports, and their default options.

#[derive(Debug)]
pub(super) struct Locale {
    /// As a client writes it.
    pub(super) id: &'static str,
    /// Other orders of the same language: what a client writes after `@collation=`, and its name in
    /// language tags.
    pub(super) variants: &'static [(&'static str, &'static str)],
    /// Variants that MongoDB has and this server does not.
    pub(super) unsupported: &'static [&'static str],
    pub(super) defaults: Defaults,
}

/// The options that differ among locales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defaults {
    Common,
    /// `normalization: true`
    Normalized,
    /// `caseFirst: "upper"`
    UpperFirst,
    /// `backwards: true`
    Backwards,
    /// `alternate: "shifted"`, `normalization: true`
    Shifted,
}

const fn plain(id: &'static str) -> Locale {
    Locale {
        id,
        variants: &[],
        unsupported: &[],
        defaults: Defaults::Common,
    }
}

const fn with(id: &'static str, defaults: Defaults) -> Locale {
    Locale {
        defaults,
        ..plain(id)
    }
}

/// With the variant for searching, whose rules are not here.
const fn search(id: &'static str) -> Locale {
    Locale {
        unsupported: &["search"],
        ..plain(id)
    }
}

const TRADITIONAL: &[(&str, &str)] = &[("traditional", "trad")];
const PHONEBOOK: &[(&str, &str)] = &[("phonebook", "phonebk")];
const UNIHAN: &[(&str, &str)] = &[("unihan", "unihan")];

/// Every locale, by name.
pub(super) const LOCALES: &[Locale] = &[
    plain("af"),
    plain("am"),
    Locale {
        variants: &[("compat", "compat")],
        ..plain("ar")
    },
    with("as", Defaults::Normalized),
    search("az"),
    plain("be"),
    plain("bg"),
    Locale {
        variants: TRADITIONAL,
        ..with("bn", Defaults::Normalized)
    },
    with("bo", Defaults::Normalized),
    search("bs"),
    plain("bs_Cyrl"),
    search("ca"),
    plain("chr"),
    search("cs"),
    plain("cy"),
    Locale {
        defaults: Defaults::UpperFirst,
        ..search("da")
    },
    Locale {
        variants: PHONEBOOK,
        unsupported: &["search", "eor"],
        ..plain("de")
    },
    Locale {
        variants: PHONEBOOK,
        ..plain("de_AT")
    },
    plain("dsb"),
    plain("dz"),
    plain("ee"),
    with("el", Defaults::Normalized),
    plain("en"),
    plain("en_US"),
    plain("en_US_POSIX"),
    plain("eo"),
    Locale {
        variants: TRADITIONAL,
        ..search("es")
    },
    plain("et"),
    with("fa", Defaults::Normalized),
    with("fa_AF", Defaults::Normalized),
    Locale {
        variants: TRADITIONAL,
        ..search("fi")
    },
    plain("fil"),
    plain("fo"),
    plain("fr"),
    with("fr_CA", Defaults::Backwards),
    plain("ga"),
    search("gl"),
    with("gu", Defaults::Normalized),
    plain("ha"),
    plain("haw"),
    Locale {
        defaults: Defaults::Normalized,
        ..search("he")
    },
    with("hi", Defaults::Normalized),
    search("hr"),
    plain("hsb"),
    plain("hu"),
    plain("hy"),
    plain("id"),
    with("ig", Defaults::Normalized),
    search("is"),
    plain("it"),
    Locale {
        variants: UNIHAN,
        ..plain("ja")
    },
    plain("ka"),
    plain("kk"),
    search("kl"),
    with("km", Defaults::Normalized),
    Locale {
        variants: TRADITIONAL,
        ..with("kn", Defaults::Normalized)
    },
    Locale {
        variants: UNIHAN,
        unsupported: &["search", "searchjl"],
        ..plain("ko")
    },
    with("kok", Defaults::Normalized),
    plain("ky"),
    plain("lb"),
    plain("lkt"),
    Locale {
        unsupported: &["phonetic"],
        ..plain("ln")
    },
    plain("lo"),
    plain("lt"),
    plain("lv"),
    plain("mk"),
    plain("ml"),
    plain("mn"),
    with("mr", Defaults::Normalized),
    plain("ms"),
    with("mt", Defaults::UpperFirst),
    with("my", Defaults::Normalized),
    search("nb"),
    plain("ne"),
    plain("nl"),
    search("nn"),
    plain("om"),
    with("or", Defaults::Normalized),
    with("pa", Defaults::Normalized),
    plain("pl"),
    with("ps", Defaults::Normalized),
    plain("pt"),
    plain("ro"),
    plain("root"),
    plain("ru"),
    search("se"),
    Locale {
        variants: &[("dictionary", "dict")],
        ..with("si", Defaults::Normalized)
    },
    search("sk"),
    plain("sl"),
    search("smn"),
    plain("sq"),
    plain("sr"),
    search("sr_Latn"),
    search("sv"),
    plain("sw"),
    with("ta", Defaults::Normalized),
    with("te", Defaults::Normalized),
    with("th", Defaults::Shifted),
    plain("to"),
    search("tr"),
    plain("ug"),
    plain("uk"),
    plain("ur"),
    Locale {
        variants: TRADITIONAL,
        ..with("vi", Defaults::Normalized)
    },
    plain("wae"),
    Locale {
        defaults: Defaults::Normalized,
        ..search("yi")
    },
    with("yo", Defaults::Normalized),
    Locale {
        variants: &[("unihan", "unihan"), ("zhuyin", "zhuyin")],
        unsupported: &["big5han", "gb2312han"],
        ..plain("zh")
    },
    plain("zh_Hant"),
    plain("zu"),
];

/// Other names of locales, which MongoDB refuses with the name to use.
const ALIASES: &[(&str, &str)] = &[
    ("in", "id"),
    ("iw", "he"),
    ("no", "nb"),
    ("sh", "sr_Latn"),
    ("zh@collation=pinyin", "zh"),
    ("zh@collation=stroke", "zh_Hant"),
    ("zh_HK", "zh_Hant"),
    ("zh_MO", "zh_Hant"),
    ("zh_TW", "zh_Hant"),
];

/// The locale with exactly this name, without a variant.
pub(super) fn find(id: &str) -> Option<&'static Locale> {
    LOCALES.iter().find(|locale| locale.id == id)
}

/// The name that a client may have meant: written as names of locales are, or of the language alone.
pub(super) fn suggestion(id: &str) -> Option<&'static str> {
    if id.len() > MAX_ID_BYTES || !id.is_ascii() {
        return None;
    }
    let alias = |id: &str| {
        let known = ALIASES.iter().find(|(other, _)| *other == id);
        known.map(|(_, id)| *id)
    };
    if let Some(id) = alias(id) {
        return Some(id);
    }
    let base = id.split('@').next().unwrap_or_default();
    let mut parts: Vec<String> = (base.split(['_', '-']).enumerate())
        .map(|(at, part)| match (at, part.len()) {
            (0, _) => part.to_ascii_lowercase(),
            (_, 4) if part.chars().all(|c| c.is_ascii_alphabetic()) => {
                let (first, rest) = part.split_at(1);
                first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
            }
            _ => part.to_ascii_uppercase(),
        })
        .collect();
    while !parts.is_empty() {
        let name = parts.join("_");
        if let Some(id) = alias(&name) {
            return Some(id);
        }
        if let Some(locale) = find(&name).filter(|locale| locale.id != "root") {
            return Some(locale.id);
        }
        parts.pop();
    }
    None
}

/// No name of a locale is longer.
const MAX_ID_BYTES: usize = 156;

"""The words of the demo's texts.

The lists are moderate on purpose: long enough that a model must read the text instead of guessing, short enough that
most words are one token of the demo's small vocabulary.
"""

from __future__ import annotations

FIRST_NAMES: tuple[str, ...] = tuple(
    """Ada Adam Agnes Aisha Alan Albert Alice Amina Amir Ana Andre Anita Anna Anton Arthur Astrid Ben Bianca Boris
    Bruno Camille Carla Carlos Cecilia Chen Clara Daniel Daria David Diana Diego Dora Edgar Elena Elias Ella Emil Emma
    Erik Esther Eva Farah Felix Fiona Frank Frida Gabriel George Grace Greta Hana Hanna Hassan Helen Henry Hugo Ida
    Igor Ines Ingrid Irene Isaac Iris Ivan Jack Jakob James Jana Jasmin Joan Johan Jonas Jorge Jose Julia Karim Karl
    Kate Keiko Kenji Lara Laura Lea Leila Lena Leo Liam Lina Linus Louis Lucia Luis Luna Maja Marco Maria Marie Mark
    Marta Martin Max Maya Mia Mila Mina Mohamed Mona Nadia Naomi Nelson Nina Noah Nora Oleg Olga Oliver Omar Oscar Otto
    Paula Pavel Pedro Peter Petra Philip Pia Priya Rahul Raj Ravi Rebecca Rita Robert Rosa Ruth Said Sam Samir Sara
    Selma Sergei Simon Sofia Sonia Stefan Sven Tara Teresa Theo Thomas Tim Tina Tom Uma Ute Valentina Vera Victor
    Viktor Walter Wanda Wei William Yara Yuki Yusuf Zara
    Zoë Jürgen Renée Łukasz Åsa""".split()
)

LAST_NAMES: tuple[str, ...] = tuple(
    """Abbott Ahmed Ali Almeida Andersen Aoki Bailey Baker Bauer Becker Berg Bianchi Blanc Bond Brandt Brown Bruun
    Burke Carter Castro Chan Clark Cohen Cole Conti Cooper Costa Cruz Dahl Dalton Demir Diaz Dietrich Dubois Duarte
    Duran Eliot Endo Engel Evans Falk Farmer Fischer Flores Foster Fox Franke Fuchs Garcia Gibson Gomez Graf Grant
    Green Gruber Gupta Haas Hall Hansen Hart Hayashi Herrera Hill Hoffman Holm Hopkins Huang Hughes Ibrahim Ito Jackson
    Jansen Jensen Jones Kaiser Kang Kaur Keller Kelly Khan Kim Klein Koch Kovacs Kowalski Kraus Kruse Kumar Lambert
    Lang Larsen Laurent Lee Lehmann Lewis Li Lindgren Lopez Lund Madsen Maier Marino Martins Mason Mehta Mendes Meyer
    Miller Mills Molina Moore Moreau Moreno Mori Moser Murphy Nagy Nakamura Nguyen Nielsen Novak Nowak Olsen Ortega
    Owens Park Parker Patel Pereira Perez Peters Petrov Pham Pinto Popov Porter Price Quinn Rahman Ramos Reid Reyes
    Ricci Richter Rivera Rossi Roth Roy Russo Sanchez Santos Sato Schmidt Schulz Schwarz Shah Sharma Shaw Silva Singh
    Smith Sokolov Sousa Stein Stone Suzuki Svensson Tanaka Taylor Torres Tran Turner Varga Vega Vogel Wagner Walker
    Wang Ward Watson Weber West White Wilson Winter Wolf Wong Wood Wright Yamada Yang Yilmaz Young Zhang Ziegler
    Müller Núñez Sørensen Lefèvre Žižek""".split()
)

CITIES: tuple[str, ...] = tuple(
    """Accra Amsterdam Ankara Athens Austin Baku Barcelona Basel Beirut Belgrade Bergen Berlin Bern Bilbao Bogota Bonn
    Boston Bremen Brussels Cairo Calgary Cardiff Chicago Copenhagen Cork Dakar Dallas Delhi Denver Dresden Dubai Dublin
    Edinburgh Florence Frankfurt Geneva Genoa Ghent Glasgow Graz Hamburg Hanoi Havana Helsinki Istanbul Jakarta Kiel
    Kyoto Lagos Leeds Leipzig Lima Lisbon Liverpool London Lyon Madrid Manila Melbourne Memphis Miami
    Milan Montreal Mumbai Munich Nairobi Nantes Naples Nice Osaka Oslo Ottawa Oxford Palermo Paris Perth Pisa Porto
    Prague Quito Riga Rome Rotterdam Salzburg Seattle Seoul Seville Sofia Stockholm Sydney Tallinn Tampere Tokyo
    Toronto Toulouse Trieste Tunis Turin Turku Utrecht Valencia Venice Verona Vienna Vilnius Warsaw York Zagreb
    Zürich Málaga Kraków Århus""".split()
)

COMPANY_HEADS: tuple[str, ...] = tuple(
    """Acorn Alpine Amber Anchor Apex Arrow Atlas Aurora Beacon Birch Blue Bridge Bright Canyon Cedar Central Chestnut
    Cobalt Copper Coral Crystal Delta Eagle Eastern Echo Ember Evergreen Falcon First Forest Garden Golden Granite
    Harbor Hazel Heron Highland Horizon Indigo Iron Island Ivory Juniper Lake Lantern Laurel Lime Lotus Maple Marble
    Meadow Meridian Metro Mill Moon Mountain Nordic Northern Oak Ocean Olive Onyx Orbit Orchid Pacific Pearl Pine
    Pioneer Prime Quartz Raven Red River Royal Ruby Sable Saffron Sierra Silver Solar Southern Spring Star Summit
    Swift Terra Tidal Topaz Union United Valley Velvet Violet Vista Western Willow Zenith""".split()
)

COMPANY_TAILS: tuple[str, ...] = tuple(
    """Analytics Bakery Books Brewery Builders Catering Ceramics Chemicals Cleaning Coffee Consulting Design Electric
    Energy Engineering Farms Films Foods Freight Furniture Gardens Glass Group Hardware Health Insurance Labs Lighting
    Linen Logistics Machines Marine Media Metals Motors Music Optics Packaging Paper Partners Pharma Plastics Press
    Print Roofing Security Services Shipping Software Sports Steel Studio Supplies Systems Textiles Timber Tools Toys
    Trading Transport Travel Works""".split()
)

JOBS: tuple[str, ...] = tuple(
    """accountant actor analyst architect baker banker barber biologist butcher carpenter chemist cook courier dancer
    dentist designer doctor driver editor electrician engineer farmer firefighter florist gardener geologist glazier
    historian jeweller journalist judge lawyer librarian locksmith mechanic midwife miner musician nurse optician
    painter pharmacist photographer physicist pilot plumber potter printer programmer researcher roofer sailor
    scientist sculptor secretary singer surgeon surveyor tailor teacher translator vet waiter weaver welder
    writer""".split()
)

ONSETS: tuple[str, ...] = (
    *"b c d f g h j k l m n p r s t v w z".split() * 4,
    *"bl br ch cl cr dr fl fr gl gr kr ph pl pr qu sch sh sl st th tr vl".split(),
    "",
)
VOWELS: tuple[str, ...] = (*("a", "e", "i", "o", "u") * 6, *"ai au ea ee ei ie oo ou ue y".split())
CODAS: tuple[str, ...] = (*"l m n r s t".split() * 4, *"ck d ff g ld ll nd ng nn rd rg rs ss x".split(), *[""] * 8)

OPENINGS: tuple[str, ...] = (
    "Hi! ",
    "Hello. ",
    "Dear team: ",
    "Good morning! ",
    "FYI: ",
    "Note {n}: ",
    "One more for the records. ",
    "As discussed: ",
)
CLOSINGS: tuple[str, ...] = (
    " Thanks!",
    " Best regards",
    " Please confirm.",
    " Call me on extension {n}.",
    " I will call again tomorrow.",
    " See page {n} of the file.",
    " Ticket {n}.",
    " Let me know if anything is missing.",
)

MONTHS: tuple[str, ...] = tuple(
    "January February March April May June July August September October November December".split()
)

NUMBER_WORDS: tuple[str, ...] = tuple(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen".split()
)

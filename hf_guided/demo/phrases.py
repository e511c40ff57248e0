"""How the texts of `records.py` state one fact, by topic.

`{v}` is the value as the text writes it. `be` follows "is", `do` follows a subject, `tag` stands between commas, `say`
is a sentence of its own. `names` are the field names that ask for the fact, `labels` more words for "label: value".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """The field names of one fact, and the phrases that state it."""

    names: str
    labels: str = ""
    be: tuple[str, ...] = ()
    do: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    say: tuple[str, ...] = ()


def labelled(noun: str) -> tuple[str, ...]:
    """Phrases that say of any word what it is."""
    return (f"The {noun} is {{v}}", f"{noun}: {{v}}", f"{noun} {{v}}", f"has the {noun} {{v}}", f"with {noun} {{v}}")


NAME = Topic(
    "name name name full_name person customer client guest contact employee patient sender author owner user buyer "
    "member student applicant candidate tenant driver traveler passenger subscriber customer_name client_name "
    "guest_name contact_name person_name user_name employee_name contact_person who whom recipient participant "
    "caller visitor lead attendee speaker player artist nurse reporter",
    "Name Full_name Customer Client Guest Contact From To Attn Who",
    say=(
        "This is {v}",
        "My name is {v}",
        "I am {v}",
        "I'm {v}",
        "It is about {v}",
        "Please contact {v}",
        "{v} wrote to us",
        "Meet {v}",
        "We spoke with {v} today",
        "{v} here",
        "The name is {v}",
        "{v} called this morning",
        "We have a new customer, {v}",
        "Message from {v}",
        "{v} has sent us a message",
        "Please say hello to {v}",
        "Ordered by {v}",
        "Booked by {v}",
        "It is for {v}",
        "A note about {v}",
        "Regards, {v}",
        "Ask for {v}",
        "Signed by {v}",
        "{v} signed up",
        "{v} has joined",
        "We met {v}",
        "The file of {v}",
        "The person is called {v}",
        "Welcome {v}",
        "For {v}",
        "Hello, {v} speaking",
    ),
)
ROLES = (
    "customer client guest patient employee tenant student driver buyer owner applicant candidate member contact "
    "author traveler passenger subscriber visitor caller recipient speaker player participant".split()
)
SECOND_ROLES = (
    "manager supervisor boss doctor teacher coach agent host assistant partner landlord lawyer referee mentor seller "
    "director trainer dentist chef organizer spouse emergency_contact referrer interviewer reviewer guide pilot".split()
)
SECOND_NAME = (
    "The {role} is {v}",
    "{v} is the {role}",
    "{role}: {v}",
    "with {v} as {role}",
    "Her {role} is {v}",
    "His {role} is {v}",
    "The {role} is called {v}",
    "Our {role} {v} knows about it",
    "{v} acts as {role}",
)
FIRST_NAME = Topic("first_name first_name given_name firstname forename first")
LAST_NAME = Topic("last_name last_name surname family_name lastname last")

EMAIL = Topic(
    "email email email e_mail mail email_address mail_address contact_email work_email address_email e_mail_address "
    "customer_email user_email reply_to",
    "Email E-mail Mail email e-mail mail Email_address",
    be=("reachable at {v}", "available at {v}", "on {v}", "best reached at {v}", "reachable by email at {v}"),
    do=(
        "uses {v}",
        "can be reached at {v}",
        "has the address {v}",
        "reads mail at {v}",
        "writes from {v}",
        "answers at {v}",
        "can be contacted at {v}",
        "has the email {v}",
        "signed up with {v}",
    ),
    tag=("reachable at {v}", "email {v}", "mail {v}", "e-mail: {v}", "{v}", "contact {v}", "via {v}", "email: {v}"),
    say=(
        "Write to {v}",
        "Mail: {v}",
        "Contact: {v}",
        "Send it to {v}",
        "The email is {v}",
        "My email is {v}",
        "Her email is {v}",
        "His email is {v}",
        "You can reach me at {v}",
        "Email me at {v}",
        "Please reply to {v}",
        "The e-mail address is {v}",
        "Email address: {v}",
        "Please answer to {v}",
        "{v} is the best address",
        "Reach them under {v}",
        "Send the receipt to {v}",
        "Send an email to {v}",
    ),
)
PHONE = Topic(
    "phone phone telephone tel mobile phone_number cell telephone_number contact_number number_to_call mobile_number "
    "cell_phone work_phone home_phone fax hotline call",
    "Phone Tel Telephone Mobile Cell phone tel Phone_number",
    be=("reachable on {v}", "reachable at {v}", "on {v}", "available under {v}", "available by phone at {v}"),
    do=(
        "has the phone number {v}",
        "can be called on {v}",
        "answers the phone at {v}",
        "can be reached on {v}",
        "can be phoned at {v}",
        "called from {v}",
        "has the number {v}",
    ),
    tag=("phone {v}", "tel. {v}", "tel {v}", "mobile {v}", "{v}", "call {v}", "phone: {v}", "reachable on {v}"),
    say=(
        "Call {v}",
        "Phone: {v}",
        "Tel: {v}",
        "The number is {v}",
        "My phone number is {v}",
        "Please call {v}",
        "Her phone is {v}",
        "His phone number is {v}",
        "You can call me at {v}",
        "Ring {v}",
        "Call back on {v}",
        "Phone number {v}",
        "The phone number is {v}",
        "Dial {v}",
        "Reach me on {v}",
        "Mobile: {v}",
        "Text {v}",
    ),
)
AGE = Topic(
    "age age age years years_old age_in_years age_years current_age how_old",
    "Age age Years",
    be=(
        "{v}",
        "{v} years old",
        "{v} years old",
        "aged {v}",
        "{v} years of age",
        "now {v}",
        "just {v}",
        "{v} this year",
        "a {v} year old",
    ),
    do=("turned {v}", "turned {v} last week", "is aged {v}", "has turned {v}", "just turned {v}"),
    tag=("{v}", "aged {v}", "age {v}", "{v} years old", "age: {v}", "a {v}-year-old", "{v} y/o"),
    say=(
        "Age: {v}",
        "Age {v}",
        "The age is {v}",
        "Her age is {v}",
        "At {v} this is no surprise",
        "Already {v} years old",
    ),
)
CITY = Topic(
    "city city town place location home_town hometown residence based_in lives_in home_city destination municipality "
    "where venue_city branch home",
    "City Town Location Place Home Residence",
    be=(
        "from {v}",
        "based in {v}",
        "in {v}",
        "at home in {v}",
        "living in {v}",
        "currently in {v}",
        "a resident of {v}",
    ),
    do=(
        "lives in {v}",
        "comes from {v}",
        "moved to {v}",
        "works in {v}",
        "lives near the station in {v}",
        "resides in {v}",
        "grew up in {v}",
        "travels to {v}",
        "stays in {v}",
        "flies to {v}",
        "has a flat in {v}",
    ),
    tag=("from {v}", "in {v}", "{v}", "based in {v}", "living in {v}", "of {v}", "city {v}", "resident of {v}"),
    say=(
        "City: {v}",
        "It takes place in {v}",
        "The city is {v}",
        "We meet in {v}",
        "The place is {v}",
        "Home is {v}",
        "Location: {v}",
        "Send it to {v}",
        "The office is in {v}",
        "Delivery to {v}",
        "It was in {v}",
        "Shipping to {v}",
        "The town is {v}",
        "{v} is the place",
    ),
)
COUNTRY = Topic(
    "country country nation nationality_country country_of_origin home_country origin citizenship land",
    "Country Nation Origin",
    be=("from {v}", "a citizen of {v}"),
    do=("was born in {v}", "comes from {v}", "is a citizen of {v}", "lives in {v}"),
    tag=("from {v}", "{v}", "country {v}", "made in {v}"),
    say=("The country is {v}", "Country: {v}", "Made in {v}", "It ships to {v}", "It was shipped from {v}"),
)
STREET = Topic(
    "address address street street_address home_address shipping_address delivery_address office_address",
    "Address Street",
    do=("lives at {v}", "has an office at {v}", "moved to {v}", "lives on {v}"),
    tag=("{v}", "at {v}", "address {v}", "living at {v}"),
    say=(
        "The address is {v}",
        "Address: {v}",
        "Deliver to {v}",
        "Please ship to {v}",
        "We meet at {v}",
        "It is at {v}",
    ),
)
POSTCODE = Topic(
    "postal_code zip zip_code postcode zipcode plz",
    "Postcode ZIP Zip_code",
    tag=("postcode {v}", "zip {v}", "zip code {v}"),
    say=("The postcode is {v}", "The zip code is {v}", "ZIP {v}", "Postal code: {v}"),
)
JOB = Topic(
    "job job profession occupation job_title role position work title trade career",
    "Job Profession Occupation Role Position",
    be=("{a}", "{a}", "working as {a}", "our {v}", "the {v}", "employed as {a}", "{a} by trade"),
    do=("works as {a}", "has been {a} for years", "was hired as {a}", "earns a living as {a}", "is working as {a}"),
    tag=("{a}", "{v}", "our {v}", "job: {v}", "working as {a}", "the {v}"),
    say=(
        "Job: {v}",
        "The job is {v}",
        "Profession: {v}",
        "We need {a}",
        "Position: {v}",
        "Her job is {v}",
        "Role: {v}",
    ),
)
JOB_RANKS = "senior head data project software sales chief junior night school".split()
COMPANY = Topic(
    "company company employer firm organization organisation company_name business vendor supplier workplace brand "
    "manufacturer seller shop store works_at customer_company",
    "Company Employer Firm Organization Vendor Supplier Shop",
    be=("at {v}", "employed at {v}", "employed by {v}"),
    do=(
        "works for {v}",
        "works at {v}",
        "joined {v}",
        "is employed by {v}",
        "represents {v}",
        "runs {v}",
        "bought it from {v}",
    ),
    tag=("of {v}", "at {v}", "from {v}", "working for {v}", "company {v}"),
    say=(
        "The company is {v}",
        "The employer is {v}",
        "Company: {v}",
        "{v} is the supplier",
        "{v} sent the parcel",
        "The order went to {v}",
        "It was bought at {v}",
        "The firm is called {v}",
        "The seller is {v}",
        "{v} delivers it",
    ),
)

DATES: dict[str, Topic] = {
    "birth": Topic(
        "birthday birth_date date_of_birth born birthdate dob born_on",
        "Birthday Born Date_of_birth Birth_date",
        be=("born on {v}", "born {v}"),
        do=("was born on {v}", "was born {v}", "has been around since {v}", "celebrates a birthday, born {v}"),
        tag=("born on {v}", "born {v}", "date of birth {v}", "b. {v}"),
        say=("The date of birth is {v}", "Date of birth: {v}", "Her birthday is {v}", "Birthday: {v}"),
    ),
    "event": Topic(
        "date date day event_date meeting_date appointment when on scheduled_for appointment_date visit_date "
        "wedding_date "
        "visit meeting",
        "Date Day When Event_date Meeting",
        do=(
            "comes on {v}",
            "has an appointment on {v}",
            "will visit us on {v}",
            "visits on {v}",
        ),
        tag=("on {v}", "{v}", "dated {v}", "date {v}"),
        say=(
            "The date is {v}",
            "We meet on {v}",
            "The meeting is on {v}",
            "It takes place on {v}",
            "Date: {v}",
            "The appointment is on {v}",
            "The party is on {v}",
            "On {v} it happened",
            "See you on {v}",
            "It is planned for {v}",
            "It happened on {v}",
            "The event is on {v}",
            "The wedding is on {v}",
            "On {v} we have a meeting",
            "Scheduled for {v}",
            "{v} it is",
        ),
    ),
    "start": Topic(
        "check_in arrival arrival_date start start_date from_date begins starts_on begin checkin_date check_in_date "
        "first_day departure_from starting hire_date",
        "Check-in Arrival Start From Start_date",
        be=("arriving on {v}",),
        do=(
            "arrives on {v}",
            "checks in on {v}",
            "starts on {v}",
            "starts work on {v}",
            "begins on {v}",
            "moves in on {v}",
        ),
        tag=("arriving {v}", "arriving on {v}", "from {v}", "starting {v}", "check-in {v}", "starting on {v}"),
        say=(
            "It starts on {v}",
            "Arrival is {v}",
            "Check-in is on {v}",
            "Arrival: {v}",
            "The first day is {v}",
            "From {v} on",
            "Start date: {v}",
            "The course begins on {v}",
            "Check-in: {v}",
        ),
    ),
    "end": Topic(
        "check_out departure departure_date end end_date until return_date ends ends_on leaves checkout_date "
        "check_out_date last_day to_date",
        "Check-out Departure End Until End_date",
        do=(
            "leaves on {v}",
            "checks out on {v}",
            "stays until {v}",
            "departs on {v}",
            "returns on {v}",
            "moves out on {v}",
        ),
        tag=("until {v}", "leaving on {v}", "departing {v}", "to {v}", "check-out {v}", "leaving {v}"),
        say=(
            "It ends on {v}",
            "Departure is {v}",
            "Check-out is on {v}",
            "Departure: {v}",
            "The last day is {v}",
            "End date: {v}",
            "The return is on {v}",
            "The course ends on {v}",
            "Check-out: {v}",
        ),
    ),
    "due": Topic(
        "due due_date deadline pay_by expires valid_until expiry expiry_date expiration_date due_by due_on submit_by",
        "Due Deadline Due_date Expires Valid_until",
        do=("has to pay by {v}", "must answer by {v}", "has time until {v}", "must pay before {v}"),
        tag=("due {v}", "due on {v}", "deadline {v}", "valid until {v}", "payable by {v}", "due by {v}"),
        say=(
            "It is due on {v}",
            "The deadline is {v}",
            "Please pay by {v}",
            "Payment is due on {v}",
            "It expires on {v}",
            "Due date: {v}",
            "We need it by {v}",
            "The offer is valid until {v}",
            "Due: {v}",
            "Deadline: {v}",
        ),
    ),
    "delivery": Topic(
        "delivery delivery_date ship_date shipped_on shipping_date delivered_on shipped delivered pickup_date "
        "delivery_day "
        "ship_by",
        "Delivery Delivery_date Shipped Ship_date Pickup",
        do=("gets the parcel on {v}", "wants it delivered on {v}", "picks it up on {v}", "expects delivery on {v}"),
        tag=("delivery {v}", "to be delivered on {v}", "shipped on {v}", "delivery on {v}", "delivered {v}"),
        say=(
            "Delivery is on {v}",
            "It ships on {v}",
            "Please deliver on {v}",
            "The parcel was shipped on {v}",
            "Delivery date: {v}",
            "It will be delivered on {v}",
            "Delivery: {v}",
            "The delivery comes on {v}",
        ),
    ),
    "order": Topic(
        "order_date ordered_on purchased bought_on invoice_date issued created signed ordered purchase_date "
        "date_ordered "
        "joined joined_on signup_date registered issue_date created_on signed_on member_since hired_on",
        "Order_date Ordered Purchased Issued Created Signed Invoice_date Joined",
        do=(
            "ordered on {v}",
            "bought it on {v}",
            "signed on {v}",
            "joined on {v}",
            "signed up on {v}",
            "joined us on {v}",
            "placed an order on {v}",
            "registered on {v}",
        ),
        tag=("ordered on {v}", "bought on {v}", "dated {v}", "signed {v}", "purchased {v}", "member since {v}"),
        say=(
            "The order is of {v}",
            "The invoice is dated {v}",
            "Ordered on {v}",
            "Order date: {v}",
            "It was ordered on {v}",
            "The order was placed on {v}",
            "It was signed on {v}",
            "The contract was signed on {v}",
            "Bought {v}",
        ),
    ),
}

AMOUNT = Topic(
    "amount amount price total cost sum fee bill value payment total_price total_amount amount_due price_total charge "
    "expense budget net_price invoice_total total_cost order_total sale_price paid_amount rate cost_total",
    "Amount Price Total Cost Sum Fee",
    do=(
        "paid {v}",
        "owes {v}",
        "pays {v}",
        "spent {v}",
        "has to pay {v}",
        "was charged {v}",
        "transferred {v}",
        "donated {v}",
        "will pay {v}",
        "has a budget of {v}",
    ),
    tag=("{v}", "for {v}", "total {v}", "at {v}", "price {v}", "worth {v}", "over {v}", "costing {v}"),
    say=(
        "The total is {v}",
        "It costs {v}",
        "The price is {v}",
        "Total: {v}",
        "Amount due: {v}",
        "The bill comes to {v}",
        "The fee is {v}",
        "That makes {v}",
        "The amount is {v}",
        "They charge {v}",
        "The order comes to {v}",
        "It was {v}",
        "Price: {v}",
        "The cost is {v}",
        "The sum of {v} was paid",
        "It came to {v} in total",
        "The budget is {v}",
        "An invoice over {v}",
        "We paid {v}",
        "Please transfer {v}",
        "The total cost was {v}",
    ),
)
SECOND_AMOUNTS: dict[str, Topic] = {
    noun.split()[0]: Topic(
        noun,
        be=(),
        do=(f"pays {{v}} {noun.split()[0]}", f"gets {{v}} {noun.split()[0]}"),
        tag=(f"{noun.split()[0]} {{v}}", f"plus {{v}} {noun.split()[0]}", f"{noun.split()[0]}: {{v}}"),
        say=(
            f"The {noun.split()[0]} is {{v}}",
            f"plus {{v}} {noun.split()[0]}",
            f"{noun.split()[0]}: {{v}}",
            f"{{v}} of it is {noun.split()[0]}",
            f"The {noun.split()[0]} comes to {{v}}",
        ),
    )
    for noun in (
        "deposit deposit_amount",
        "tip tip_amount",
        "shipping shipping_cost",
        "tax tax_amount vat",
        "salary monthly_salary annual_salary wage pay",
        "rent monthly_rent",
        "discount discount_amount",
        "balance account_balance",
        "refund refund_amount",
        "insurance insured_value",
        "postage",
    )
}

YES_NO: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    # field names; phrases of yes; phrases of no: after a subject when they start with a verb, else a sentence
    (
        "paid paid is_paid settled payment_received paid_in_full has_paid",
        (
            "has paid",
            "has already paid",
            "It has been paid",
            "Paid in full",
            "The money has arrived",
            "This is already settled",
            "The bill is paid",
            "Already paid",
            "It is paid",
            "The invoice has been settled",
            "payment received",
        ),
        (
            "has not paid",
            "has not paid yet",
            "It is still open",
            "Not paid yet",
            "Payment is outstanding",
            "It is unpaid",
            "We have not settled it",
            "The bill is not paid",
            "still unpaid",
            "has yet to pay",
            "payment pending",
        ),
    ),
    (
        "remote remote works_remotely is_remote home_office works_from_home",
        (
            "works from home",
            "works remotely",
            "is fully remote",
            "works in a home office",
            "It is a remote job",
            "remote",
        ),
        (
            "comes to the office",
            "works on site",
            "is in the office every day",
            "works in the office",
            "does not work remotely",
            "on site",
        ),
    ),
    (
        "vegetarian vegetarian is_vegetarian veggie",
        (
            "is vegetarian",
            "is a vegetarian",
            "eats no meat",
            "does not eat meat",
            "vegetarian",
            "Vegetarian food please",
        ),
        ("is not vegetarian", "eats meat", "is no vegetarian", "loves meat", "not vegetarian", "eats everything"),
    ),
    (
        "vegan is_vegan",
        ("is vegan", "is a vegan", "eats vegan food", "vegan"),
        ("is not vegan", "is no vegan", "not vegan"),
    ),
    (
        "member member is_member membership club_member",
        (
            "is a member",
            "is already a member",
            "has a membership",
            "is a club member",
            "member of the club",
            "belongs to the club",
        ),
        ("is not a member", "is no member", "has no membership", "is not a member yet", "not a member"),
    ),
    (
        "breakfast breakfast with_breakfast breakfast_included includes_breakfast",
        ("wants breakfast", "with breakfast", "breakfast included", "and breakfast please", "Breakfast is included"),
        ("wants no breakfast", "without breakfast", "no breakfast", "but no breakfast", "Breakfast is not included"),
    ),
    (
        "urgent urgent is_urgent high_priority rush",
        ("It is urgent", "This is urgent", "urgent", "Please hurry", "needs it urgently", "It cannot wait", "Urgent!"),
        (
            "It is not urgent",
            "There is no hurry",
            "not urgent",
            "No rush",
            "can wait",
            "It can wait",
            "There is no rush",
        ),
    ),
    (
        "married married is_married",
        ("is married", "married", "got married", "has a spouse"),
        ("is not married", "is single", "unmarried", "not married", "is unmarried"),
    ),
    (
        "smoker smoker smokes is_smoker smoking",
        ("smokes", "is a smoker", "smoker", "It is a smoking room"),
        ("does not smoke", "is a non-smoker", "non-smoker", "never smokes", "is not a smoker", "No smoking"),
    ),
    (
        "parking parking needs_parking has_parking with_parking parking_space",
        ("needs parking", "needs a parking space", "with parking", "Parking is included", "wants a parking space"),
        ("needs no parking", "without parking", "no parking", "does not need parking", "There is no parking"),
    ),
    (
        "pets pets has_pets pet_friendly pets_allowed with_pet",
        (
            "has a pet",
            "brings a dog",
            "Pets are allowed",
            "with a pet",
            "Pets are welcome",
            "comes with a dog",
            "has a dog",
        ),
        ("has no pets", "No pets", "without pets", "Pets are not allowed", "does not have a pet", "brings no pets"),
    ),
    (
        "newsletter newsletter subscribe wants_newsletter subscribed newsletter_opt_in",
        (
            "wants the newsletter",
            "would like the newsletter",
            "subscribes to the newsletter",
            "Please send the newsletter",
        ),
        ("does not want the newsletter", "No newsletter please", "wants no newsletter", "Please send no newsletter"),
    ),
    (
        "confirmed confirmed is_confirmed accepted",
        (
            "has confirmed",
            "It is confirmed",
            "confirmed",
            "The booking is confirmed",
            "has accepted",
            "It has been confirmed",
        ),
        (
            "has not confirmed",
            "It is not confirmed",
            "not confirmed yet",
            "The booking is not confirmed",
            "has not accepted",
        ),
    ),
    (
        "available available is_available in_stock free",
        ("is available", "It is available", "in stock", "It is in stock", "available now"),
        (
            "is not available",
            "It is not available",
            "out of stock",
            "It is out of stock",
            "unavailable",
            "is unavailable",
        ),
    ),
    (
        "insured insured is_insured insurance has_insurance",
        ("is insured", "has insurance", "It is insured", "insured", "with insurance"),
        ("is not insured", "has no insurance", "It is not insured", "uninsured", "without insurance"),
    ),
    (
        "returned returned is_returned sent_back",
        ("has returned it", "It was returned", "sent it back", "It has been returned", "returned"),
        ("has not returned it", "It was not returned", "kept it", "It has not been returned", "not returned"),
    ),
    (
        "shipped shipped is_shipped sent delivered dispatched",
        ("It has been shipped", "It was sent", "already shipped", "It has been delivered", "The parcel is on its way"),
        ("It has not been shipped", "It was not sent", "not shipped yet", "It has not been delivered", "not sent yet"),
    ),
    (
        "active active is_active enabled",
        ("is active", "The account is active", "active", "is still active", "It is enabled"),
        (
            "is not active",
            "is inactive",
            "The account is inactive",
            "inactive",
            "It is disabled",
            "is no longer active",
        ),
    ),
    (
        "new new_customer first_time first_visit is_new new_patient",
        ("is new here", "is a new customer", "is here for the first time", "It is the first visit", "a new customer"),
        ("is not new here", "has been here before", "is a regular customer", "It is not the first visit", "a regular"),
    ),
    (
        "wheelchair wheelchair wheelchair_access accessible needs_wheelchair",
        ("needs a wheelchair", "uses a wheelchair", "with wheelchair access", "wheelchair needed"),
        ("needs no wheelchair", "does not need a wheelchair", "no wheelchair needed", "without wheelchair access"),
    ),
    (
        "gift gift gift_wrap is_gift as_gift",
        ("It is a gift", "as a gift", "Please wrap it as a gift", "wants it gift wrapped", "This is a present"),
        ("It is not a gift", "no gift wrap", "wants no gift wrap", "No gift wrapping please", "not a gift"),
    ),
    (
        "driving_license drivers_license has_license license can_drive driver",
        ("has a driving license", "can drive", "has a driver's license", "drives a car"),
        ("has no driving license", "cannot drive", "has no driver's license", "does not drive"),
    ),
    (
        "student is_student",
        ("is a student", "studies", "student"),
        ("is not a student", "does not study", "is no student"),
    ),
    (
        "online online is_online virtual",
        ("It is online", "meets online", "online", "It takes place online"),
        ("It is in person", "meets in person", "in person", "It is not online", "offline"),
    ),
    (
        "full_time full_time is_full_time",
        ("works full time", "full time", "has a full-time job"),
        ("works part time", "part time", "has a part-time job"),
    ),
    (
        "approved approved is_approved",
        ("It is approved", "was approved", "approved", "It has been approved"),
        ("It is not approved", "was rejected", "not approved", "was not approved", "It has not been approved"),
    ),
    (
        "invoice_needed receipt needs_receipt wants_receipt wants_invoice",
        ("needs a receipt", "Please send a receipt", "wants a receipt"),
        ("needs no receipt", "No receipt needed", "wants no receipt", "does not need a receipt"),
    ),
    (
        "allergies has_allergies allergic",
        ("has allergies", "is allergic", "There are allergies"),
        ("has no allergies", "is not allergic", "There are no allergies", "no allergies"),
    ),
    (
        "signed signed is_signed contract_signed",
        ("has signed", "It is signed", "signed", "The contract is signed"),
        ("has not signed", "It is not signed", "not signed", "The contract is not signed yet", "unsigned"),
    ),
    (
        "attending attending will_attend coming rsvp attends is_coming",
        ("will come", "is coming", "will attend", "attends", "coming"),
        ("will not come", "is not coming", "will not attend", "cannot attend", "cannot come", "not coming"),
    ),
    (
        "children has_children kids has_kids with_children",
        ("has children", "has kids", "with children"),
        ("has no children", "has no kids", "without children", "does not have children"),
    ),
    (
        "refundable is_refundable",
        ("It is refundable", "refundable", "is refundable"),
        ("It is not refundable", "non-refundable", "is not refundable"),
    ),
    (
        "wifi has_wifi wifi_included",
        ("with wifi", "It has wifi", "Wifi is included"),
        ("no wifi", "without wifi", "It has no wifi"),
    ),
    (
        "fragile is_fragile",
        ("It is fragile", "fragile", "Handle with care, it is fragile"),
        ("It is not fragile", "not fragile"),
    ),
    ("retired is_retired", ("is retired", "has retired", "retired"), ("is not retired", "still works", "not retired")),
    (
        "verified is_verified verified_email",
        ("is verified", "verified", "has been verified"),
        ("is not verified", "unverified", "has not been verified"),
    ),
    (
        "late is_late overdue",
        ("is late", "It is overdue", "late", "overdue"),
        ("is on time", "is not late", "It is not overdue", "on time"),
    ),
    (
        "furnished is_furnished",
        ("It is furnished", "furnished"),
        ("It is unfurnished", "unfurnished", "It is not furnished"),
    ),
)
YES_NO_WORDS = (
    "garden balcony lift elevator sauna pool gym kitchen dishwasher heating fireplace terrace visa passport ticket "
    "warranty guarantee towels lunch dinner coffee transfer shuttle crib translator projector catering allergy helmet "
    "consent consents bike car computer phone_support backup alarm badge key locker photo uniform".split()
)

WITH = ("has {}", "with {}", "wants {}", "needs {}", "{} included", "with a {}", "The {} is included", "has a {}")
WITHOUT = (
    "has no {}",
    "without {}",
    "no {}",
    "wants no {}",
    "needs no {}",
    "does not need a {}",
    "without a {}",
    "There is no {}",
)

CHOICES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # field names; options ("|" between those of several words); phrases
    (
        "colour color colour color paint shade",
        "red|blue|green|black|white|yellow|grey|brown|purple|orange|pink|silver|navy|beige|teal",
        (
            "in {v}",
            "wants it in {v}",
            "The colour is {v}",
            "prefers {v}",
            "the {v} one please",
            "Colour: {v}",
            "It is {v}",
            "likes the {v} one",
            "a {v} one",
            "chose {v}",
            "The color is {v}",
            "ordered a {v} shirt",
            "drives a {v} car",
            "color {v}",
        ),
    ),
    (
        "size size shirt_size clothing_size format",
        "small|medium|large|extra large|tiny|XS|S|M|L|XL|huge",
        (
            "size {v}",
            "The size is {v}",
            "in {v}",
            "wears {v}",
            "Size: {v}",
            "needs size {v}",
            "a {v} one",
            "in size {v}",
            "wants a {v} pizza",
            "takes {v}",
            "ordered a {v} coffee",
        ),
    ),
    (
        "status status state order_status ticket_status stage",
        "open|closed|pending|shipped|cancelled|done|new|active|blocked|waiting|draft|approved|rejected|"
        "in progress|delivered|resolved",
        (
            "The status is {v}",
            "Status: {v}",
            "It is {v}",
            "The order is {v}",
            "The ticket is {v}",
            "It is still {v}",
            "now {v}",
            "status {v}",
            "currently {v}",
            "marked as {v}",
            "The request was {v}",
        ),
    ),
    (
        "priority priority urgency severity importance level risk",
        "low|medium|high|urgent|critical|normal|minor|major",
        (
            "The priority is {v}",
            "Priority: {v}",
            "{v} priority",
            "with {v} priority",
            "has {v} priority",
            "It is of {v} priority",
            "priority {v}",
            "Severity {v}",
            "marked {v}",
            "The risk is {v}",
            "urgency {v}",
        ),
    ),
    (
        "department department team unit division section dept",
        "sales|marketing|support|finance|engineering|legal|logistics|research|design|security|operations|hr|it|"
        "human resources|accounting|production",
        (
            "works in {v}",
            "in {v}",
            "The department is {v}",
            "Department: {v}",
            "from {v}",
            "joined the {v} department",
            "is in the {v} team",
            "of the {v} department",
            "leads {v}",
            "belongs to {v}",
            "dept. {v}",
        ),
    ),
    (
        "payment payment_method method pay_with paid_by paid_with",
        "cash|card|transfer|invoice|paypal|cheque|credit card|bank transfer|voucher|debit card",
        (
            "pays by {v}",
            "paid by {v}",
            "Payment: {v}",
            "payment by {v}",
            "pays with {v}",
            "paid in {v}",
            "prefers {v}",
            "by {v}",
            "The payment method is {v}",
            "Payment is by {v}",
            "via {v}",
        ),
    ),
    (
        "room room_type room room_kind accommodation",
        "single|double|suite|twin|family|studio",
        (
            "in a {v} room",
            "books a {v} room",
            "wants a {v} room",
            "a {v} room",
            "Room: {v}",
            "one {v}",
            "needs a {v}",
            "a {v} room please",
            "room type {v}",
        ),
    ),
    (
        "transport transport vehicle travel_by mode means travels_by",
        "train|bus|car|plane|bike|ship|taxi|ferry|tram|truck|on foot|van",
        (
            "comes by {v}",
            "travels by {v}",
            "by {v}",
            "Transport: {v}",
            "takes the {v}",
            "goes by {v}",
            "arrives by {v}",
        ),
    ),
    (
        "weekday day_of_week weekday day",
        "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday",
        ("on {v}", "every {v}", "comes on {v}", "It is on a {v}", "We meet on {v}", "Next {v} then", "works on {v}"),
    ),
    (
        "meal meal menu dish food diet meal_type",
        "vegetarian|vegan|fish|chicken|meat|pasta|salad|soup|beef|halal|kosher",
        (
            "wants {v}",
            "takes the {v}",
            "{v} for dinner",
            "Meal: {v}",
            "eats {v}",
            "prefers {v}",
            "the {v} menu",
            "chose the {v}",
        ),
    ),
    (
        "language language native_language spoken_language preferred_language",
        "English|German|French|Spanish|Italian|Dutch|Polish|Turkish|Arabic|Chinese|Japanese|Portuguese|Danish|"
        "Greek|Swedish",
        (
            "speaks {v}",
            "The language is {v}",
            "in {v}",
            "prefers {v}",
            "Language: {v}",
            "wants an answer in {v}",
            "reads {v}",
        ),
    ),
    (
        "plan plan tier subscription package subscription_plan",
        "free|basic|standard|premium|pro|gold|silver|business|enterprise|starter|trial|bronze|team",
        (
            "has the {v} plan",
            "on the {v} plan",
            "Plan: {v}",
            "chose the {v} plan",
            "with a {v} subscription",
            "{v} package",
            "wants {v}",
            "upgraded to {v}",
            "The tier is {v}",
        ),
    ),
    (
        "season season",
        "spring|summer|autumn|winter",
        ("in {v}", "next {v}", "It is for {v}", "The season is {v}", "this {v}"),
    ),
    (
        "shift shift time_of_day part_of_day slot",
        "morning|afternoon|evening|night|noon|midday",
        ("works in the {v}", "in the {v}", "the {v} shift", "has the {v} shift", "prefers the {v}", "comes in the {v}"),
    ),
    (
        "drink drink beverage",
        "tea|coffee|water|juice|beer|wine|milk|cola|lemonade",
        ("drinks {v}", "with {v}", "a {v} please", "wants {v}", "to drink: {v}", "takes {v}"),
    ),
    (
        "sentiment sentiment mood feedback tone opinion",
        "positive|negative|neutral|happy|angry|sad|mixed|satisfied",
        (
            "is {v}",
            "The feedback is {v}",
            "It was {v}",
            "sounds {v}",
            "left a {v} review",
            "Feedback: {v}",
            "The mood was {v}",
        ),
    ),
    (
        "category category type kind topic subject issue_type genre",
        "billing|shipping|technical|account|complaint|question|sport|music|food|travel|health|books|electronics|"
        "toys|clothing|furniture|software|hardware|bug|feature|education|politics|science",
        (
            "It is about {v}",
            "Category: {v}",
            "a {v} issue",
            "The topic is {v}",
            "filed under {v}",
            "in the category {v}",
            "has a {v} question",
            "writes about {v}",
            "The subject is {v}",
            "Type: {v}",
            "belongs to {v}",
        ),
    ),
    (
        "material material fabric",
        "wood|steel|glass|cotton|leather|wool|plastic|stone|silk|linen|paper|copper|oak|pine|marble",
        ("made of {v}", "of {v}", "It is made of {v}", "Material: {v}", "in {v}", "wants {v}", "The material is {v}"),
    ),
    ("gender sex", "male|female|diverse|other", ("is {v}", "{v}", "Gender: {v}", "The gender is {v}")),
    (
        "pet animal species pet_type",
        "dog|cat|horse|bird|rabbit|fish|hamster|cow|parrot|turtle",
        ("has a {v}", "with a {v}", "The {v} is ill", "brings the {v}", "owns a {v}", "Animal: {v}"),
    ),
    (
        "sport sport hobby activity course class",
        "tennis|football|golf|chess|yoga|swimming|running|dancing|skiing|hockey|cycling|painting|cooking|pottery|judo",
        (
            "plays {v}",
            "likes {v}",
            "the {v} course",
            "signed up for {v}",
            "Sport: {v}",
            "does {v}",
            "enjoys {v}",
            "joins the {v} class",
        ),
    ),
    (
        "condition condition quality grade",
        "new|used|good|poor|mint|broken|fair|excellent|damaged|refurbished",
        ("in {v} condition", "It is {v}", "Condition: {v}", "The condition is {v}", "The quality is {v}", "a {v} one"),
    ),
    (
        "decision decision result outcome verdict answer",
        "accept|reject|approve|deny|pass|fail|yes|no|maybe|win|loss|draw",
        (
            "The decision is {v}",
            "Result: {v}",
            "The answer is {v}",
            "The outcome was {v}",
            "It was a {v}",
            "answered {v}",
            "The result is {v}",
        ),
    ),
    (
        "delivery_method shipping shipping_method delivery",
        "express|standard|pickup|courier|overnight|economy|mail|air|sea",
        ("by {v}", "Shipping: {v}", "with {v} delivery", "wants {v} shipping", "{v} delivery", "chose {v} delivery"),
    ),
    (
        "seat class travel_class cabin seat_type",
        "window|aisle|economy|business|first|middle|balcony",
        ("a {v} seat", "wants a {v} seat", "in {v} class", "Seat: {v}", "prefers {v}"),
    ),
)
CURRENCY_NAMES = "currency currency unit currency_code paid_in"

COUNTS = (
    "nights people rooms seats tickets chairs tables bottles boxes pages days weeks months hours copies licenses items "
    "units pieces adults children guests beds cars books lamps windows doors cups plates shirts shoes bikes laptops "
    "phones printers apples eggs cakes pizzas employees students orders floors parcels bags suitcases stamps cards "
    "lessons users passengers persons dogs cats trees plants tons kilos litres bricks tiles "
    "minutes points goals".split()
)
COUNT_PHRASES = (
    "{v} {noun}",
    "for {v} {noun}",
    "needs {v} {noun}",
    "ordered {v} {noun}",
    "with {v} {noun}",
    "wants {v} {noun}",
    "It is {v} {noun}",
    "There are {v} {noun}",
    "has {v} {noun}",
    "{noun}: {v}",
    "bought {v} {noun}",
    "We need {v} {noun}",
    "Please send {v} {noun}",
    "{v} {noun} in total",
    "takes {v} {noun}",
    "would like {v} {noun}",
    "booked {v} {noun}",
    "The number of {noun} is {v}",
    "Please prepare {v} {noun}",
    "{v} {noun} please",
)
MEASURES: tuple[tuple[str, int, int, bool, tuple[str, ...]], ...] = (
    # field names, smallest, largest, whether it may have decimals, phrases
    (
        "rating rating stars score review_score",
        1,
        5,
        False,
        (
            "{v} stars",
            "gives {v} out of 5",
            "gave it {v} stars",
            "rated {v} of 5",
            "Rating: {v}",
            "The rating is {v}",
            "{v}/5",
        ),
    ),
    (
        "since year start_year joined year_joined founded built since_year hired model_year",
        1950,
        2029,
        False,
        (
            "since {v}",
            "has been here since {v}",
            "joined in {v}",
            "in {v}",
            "started in {v}",
            "It was built in {v}",
            "with us since {v}",
            "The year is {v}",
            "founded in {v}",
        ),
    ),
    (
        "duration duration minutes length duration_minutes time_needed",
        5,
        240,
        False,
        (
            "{v} minutes",
            "for {v} minutes",
            "It takes {v} minutes",
            "It lasts {v} minutes",
            "The duration is {v} minutes",
            "Duration: {v} min",
            "{v} min",
        ),
    ),
    (
        "weight weight weight_kg kg kilograms mass",
        2,
        120,
        True,
        ("weighs {v} kg", "{v} kg", "The weight is {v} kg", "Weight: {v} kg", "with {v} kg", "weighs {v} kilos"),
    ),
    (
        "height height height_cm cm tall",
        40,
        210,
        False,
        ("is {v} cm tall", "{v} cm", "The height is {v} cm", "Height: {v} cm", "{v} cm tall", "measures {v} cm"),
    ),
    (
        "discount discount percent percentage discount_percent rate",
        1,
        90,
        False,
        (
            "{v} % discount",
            "gets {v} % off",
            "with {v}% discount",
            "{v}% off",
            "a discount of {v} percent",
            "Discount: {v} %",
        ),
    ),
    (
        "temperature temperature temp degrees fever",
        1,
        45,
        True,
        (
            "{v} degrees",
            "The temperature is {v} degrees",
            "has {v} degrees",
            "It is {v} degrees",
            "Temperature: {v}",
            "at {v} °C",
        ),
    ),
    (
        "floor floor level storey",
        1,
        40,
        False,
        ("on floor {v}", "lives on floor {v}", "Floor: {v}", "floor {v}", "The floor is {v}", "on level {v}"),
    ),
    (
        "distance distance distance_km km kilometers miles",
        1,
        900,
        True,
        (
            "{v} km",
            "{v} km away",
            "drives {v} km",
            "The distance is {v} km",
            "Distance: {v} km",
            "It is {v} km from here",
        ),
    ),
    (
        "experience years_of_experience experience_years experience years_experience seniority",
        1,
        40,
        False,
        (
            "has {v} years of experience",
            "with {v} years of experience",
            "{v} years of experience",
            "Experience: {v} years",
            "has worked for {v} years",
        ),
    ),
    (
        "room_number room table table_number seat_number gate platform",
        1,
        400,
        False,
        (
            "in room {v}",
            "room {v}",
            "The room is number {v}",
            "table {v}",
            "at table {v}",
            "Gate {v}",
            "platform {v}",
            "has seat number {v}",
        ),
    ),
    (
        "area square_meters size_sqm area_sqm surface",
        10,
        900,
        False,
        ("{v} square meters", "with {v} square meters", "Area: {v} sqm", "It has {v} square meters", "{v} m2"),
    ),
)
TIME = Topic(
    "time time start_time at hour meeting_time appointment_time pickup_time",
    "Time At",
    do=("comes at {v}", "arrives at {v}", "has time at {v}"),
    tag=("at {v}", "{v}"),
    say=(
        "We start at {v}",
        "The time is {v}",
        "It begins at {v}",
        "Time: {v}",
        "We meet at {v}",
        "Come at {v}",
        "Be there at {v}",
    ),
)
CODE = Topic(
    "number number id order_number order_id code reference ref invoice_number customer_id ticket_id "
    "booking_code sku serial "
    "tracking_number booking_number case_number customer_number invoice ticket member_id flight flight_number article",
    "Number Order_number Reference Ref Code ID Order No.",
    do=("has the number {v}", "asks about {v}", "wrote about order {v}", "has the code {v}"),
    tag=("number {v}", "order {v}", "ref. {v}", "no. {v}", "reference {v}", "invoice {v}", "ticket {v}"),
    say=(
        "The number is {v}",
        "The order number is {v}",
        "Reference: {v}",
        "Order {v}",
        "The code is {v}",
        "See {v}",
        "It is about order {v}",
        "Invoice {v}",
        "Ticket {v}",
        "The booking code is {v}",
        "ID: {v}",
        "It has the number {v}",
    ),
)
PRODUCT = Topic(
    "product product item article goods product_name item_name order ordered_item thing purchase service equipment",
    "Product Item Article",
    do=(
        "ordered {a}",
        "bought {a}",
        "wants {a}",
        "needs {a}",
        "would like {a}",
        "asks for {a}",
        "is looking for {a}",
        "sold {a}",
    ),
    tag=("{a}", "product: {v}", "item: {v}"),
    say=(
        "The product is {a}",
        "The item is {a}",
        "Product: {v}",
        "It is {a}",
        "We need {a}",
        "An order for {a}",
        "One {v} please",
        "Item: {v}",
    ),
)
PRODUCTS = (
    "lamp|chair|table|desk|sofa|laptop|printer|monitor|keyboard|phone|camera|bicycle|helmet|tent|backpack|jacket|shirt|"
    "pair of shoes|coat|dress|watch|ring|book|guitar|piano|violin|oven|fridge|washing machine|toaster|kettle|knife|"
    "carpet|mirror|bed|mattress|pillow|blanket|hammer|drill|ladder|saw|pump|garden hose|rose bush|cake|pizza|"
    "coffee machine|"
    "office chair|standing desk|oak table|mountain bike|road map|bottle of wine|box of tea|wool scarf|"
    "leather bag|desk lamp|"
    "wooden shelf|tennis racket|fishing rod|headset|router|tablet|charger|umbrella|vase|clock|candle|notebook|"
    "pen|stapler"
).split("|")

NAME_LISTS = Topic(
    "guests guests attendees team children participants members players speakers authors friends witnesses students "
    "passengers names people staff kids invitees colleagues companions family siblings customers employees "
    "editors users",
    "Guests Attendees Team Children Participants Members Players With Names People",
)
NAME_LIST_PHRASES = (
    "with {v}",
    "comes with {v}",
    "{v} will join",
    "attended by {v}",
    "{noun}: {v}",
    "The {noun} are {v}",
    "the {noun} {v}",
    "{v} are the {noun}",
    "brings {v}",
    "together with {v}",
    "{v} are coming",
    "works with {v}",
    "has invited {v}",
    "travels with {v}",
    "{noun} are {v}",
    "{v} take part",
    "We expect {v}",
    "Please add {v}",
    "Invited: {v}",
    "{v} will be there",
    "The {noun} are called {v}",
    "{noun} {v}",
    "{v} came along",
    "Also present: {v}",
    "accompanied by {v}",
    "has these {noun}: {v}",
)
NAME_LIST_ONE = (
    "with {v}",
    "comes with {v}",
    "{v} will join",
    "{noun}: {v}",
    "brings {v}",
    "together with {v}",
    "{v} is coming",
    "has invited {v}",
    "travels with {v}",
    "{v} takes part",
    "Please add {v}",
    "Invited: {v}",
    "{v} will be there",
    "{v} came along",
    "Also present: {v}",
    "accompanied by {v}",
)
NAME_LIST_NONE = (
    "without {noun}",
    "no {noun}",
    "There are no {noun}",
    "{noun}: none",
    "has no {noun}",
    "comes alone",
    "Nobody else comes",
)
WORD_LISTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "languages spoken_languages",
        "English German French Spanish Italian Dutch Polish Turkish Arabic Chinese Japanese Danish Greek "
        "Swedish Hindi Korean",
        ("speaks {v}", "Languages: {v}", "knows {v}", "is fluent in {v}", "The languages are {v}"),
    ),
    (
        "skills strengths expertise",
        "python sales design welding cooking driving teaching marketing accounting painting writing planning "
        "testing negotiation photography java sql",
        ("knows {v}", "Skills: {v}", "is good at {v}", "has experience in {v}", "The skills are {v}"),
    ),
    (
        "tags keywords labels topics categories",
        "news sport music urgent travel food health science finance school art garden film politics weather books",
        ("Tags: {v}", "tagged {v}", "Keywords: {v}", "It is about {v}", "The topics are {v}", "filed under {v}"),
    ),
    (
        "hobbies interests sports activities",
        "tennis football chess yoga swimming running dancing skiing cycling painting cooking reading hiking "
        "gardening singing fishing",
        ("likes {v}", "Hobbies: {v}", "enjoys {v}", "is interested in {v}", "does {v}"),
    ),
    (
        "ingredients toppings foods groceries shopping_list",
        "cheese ham olives onions tomatoes mushrooms garlic basil eggs flour butter milk sugar rice beans pepper",
        ("with {v}", "Toppings: {v}", "It contains {v}", "Ingredients: {v}", "We need {v}", "made of {v}"),
    ),
    (
        "colours colors",
        "red blue green black white yellow grey brown purple orange pink silver",
        ("in {v}", "The colours are {v}", "Colors: {v}", "comes in {v}", "likes {v}"),
    ),
    (
        "items products order_items things articles",
        "lamp chair table desk sofa laptop printer camera tent jacket shirt watch book guitar oven fridge",
        ("ordered {v}", "Items: {v}", "bought {v}", "needs {v}", "The order: {v}", "wants {v}"),
    ),
    (
        "allergies allergens intolerances",
        "nuts milk eggs gluten fish soy peanuts wheat shellfish pollen",
        ("is allergic to {v}", "Allergies: {v}", "cannot eat {v}", "has allergies: {v}"),
    ),
    (
        "cities places stops destinations locations",
        "",
        ("visits {v}", "Stops: {v}", "travels to {v}", "The cities are {v}", "via {v}", "Cities: {v}"),
    ),
    (
        "days weekdays",
        "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
        ("on {v}", "works on {v}", "Days: {v}", "is free on {v}"),
    ),
)

ATTRIBUTES = (
    "shelf model version team project course subject title song band genre festival street district region "
    "hotel hall gate "
    "airline ship bridge river station school university faculty club league stadium museum theatre film book chapter "
    "recipe flavour brand engine plate license device printer server password nickname username account bank "
    "branch street "
    "island village farm field crop species breed pet horse dog cat medicine symptom diagnosis ward clinic lab sample "
    "planet comet label tag folder file note topic event award prize sponsor venue stage office building "
    "floor_name desk "
    "carrier route stop line platform zone sector region_name state province nationality religion instrument "
    "motto theme style design pattern flower tree fruit cheese wine tea perfume shop market supplier machine part tool "
    "contract policy insurer landlord_name street_name program channel podcast game character hero magazine newspaper "
    "website domain hashtag reason purpose comment remark wish request message goal task".split()
)
ATTRIBUTE_PHRASES = (
    "The {noun} is {v}",
    "{noun}: {v}",
    "{noun} {v}",
    "its {noun} is {v}",
    "with the {noun} {v}",
    "has the {noun} {v}",
    "The {noun} is called {v}",
    "{v} is the {noun}",
    "the {noun} is {v}",
    "uses the {noun} {v}",
    "Her {noun} is {v}",
    "the {noun} {v}",
)

COUNTRIES = (
    "France|Germany|Italy|Spain|Portugal|Poland|Norway|Sweden|Denmark|Finland|Greece|Turkey|Egypt|Kenya|Ghana|"
    "India|China|Japan|"
    "Korea|Brazil|Peru|Chile|Mexico|Canada|Ireland|Austria|Switzerland|Belgium|Croatia|Hungary|Romania|"
    "New Zealand|South Africa|"
    "Costa Rica|Sri Lanka|Morocco|Vietnam|Iceland|Estonia|Latvia|Cuba|Nepal|Argentina|Australia|Netherlands|"
    "United States"
).split("|")
STREETS = (
    "Oak Street|Main Street|High Street|Park Road|Mill Lane|Station Road|King Street|River Road|Church Lane|"
    "Lake Avenue|"
    "Garden Street|Hill Road|School Lane|Bridge Street|Elm Avenue|Market Square|Queen Street|Forest Drive|Maple Avenue"
).split("|")
TLDS = "example example example com com org net io de co.uk example.com example.org test edu fr eu info dev".split()
OPENERS = ("She", "He", "They", "The customer", "The guest", "The client", "The person", "I", "We")

# Facts, by their first field name, of which a text states one only: the other would repeat or contradict it.
ALIKE = tuple(
    frozenset(group.split())
    for group in (
        "pets pet",
        "vegetarian vegan meal",
        "urgent priority",
        "status shipped approved active confirmed returned available decision late paid",
        "new condition status sentiment",
        "plan delivery_method seat condition",
        "room seat balcony",
        "weekday days shift",
        "colour colours",
        "sport hobbies",
        "language languages",
        "product items",
        "allergies allergy",
        "children guests",
        "transport driving_license car bike",
        "category tags sport",
        "material colour",
        "meal ingredients drink coffee",
        "department category",
        "retired full_time remote",
        "city cities",
        "time shift",
        "paid payment",
        "insured insurance",
        "invoice_needed paid",
        "experience duration",
        "discount rating",
    )
)
# Fields that a text nearly answers by another fact: they are not asked as unstated.
NEARLY_STATED = {
    "city": "address country",
    "address": "city country",
    "postal_code": "address city",
    "phone": "number",
    "birthday": "age",
    "guests": "name",
    "children": "name",
    "amount": "paid",
    "payment": "paid",
    "weekday": "date",
    "date": "weekday",
    "manager": "name job",
    "company": "job",
    "job": "department company",
    "department": "job company",
    "priority": "urgent",
    "status": "paid",
    "email": "name company",
    "product": "category items",
    "items": "product category",
    "meal": "vegetarian vegan food drink",
    "pet": "pets",
    "rating": "sentiment",
}
OFTEN_IMPLIED = frozenset(
    "attending active available new late returned approved confirmed retired full_time remote".split()
)

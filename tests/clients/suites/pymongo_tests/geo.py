"""Geospatial queries: GeoJSON and legacy pairs, geospatial indexes, $near and $geoNear."""

from harness.tap import equal, raises, test
from pymongo import GEO2D, GEOSPHERE
from pymongo.errors import OperationFailure, WriteError

from . import fresh


def point(lng, lat):
    return {"type": "Point", "coordinates": [lng, lat]}


CITIES = [
    {"_id": "Berlin", "at": point(13.40, 52.52)},
    {"_id": "Hamburg", "at": point(9.99, 53.55)},
    {"_id": "Vienna", "at": point(16.37, 48.21)},
    {"_id": "Suva", "at": point(178.44, -18.14)},
    {"_id": "Apia", "at": point(-171.76, -13.83)},
    {"_id": "nowhere"},
]


def cities(client, name):
    collection = fresh(client, "geo")[name]
    collection.insert_many(CITIES)
    return collection


def names(cursor):
    return [doc["_id"] for doc in cursor]


@test
def areas_are_asked_with_and_without_an_index(client):
    collection = cities(client, "areas")
    germany = {"type": "Polygon", "coordinates": [[[6, 47.5], [15, 47.5], [15, 55], [6, 55], [6, 47.5]]]}
    pacific = {"type": "Polygon", "coordinates": [[[170, -30], [-160, -30], [-160, 0], [170, 0], [170, -30]]]}
    line = {"type": "LineString", "coordinates": [[9.99, 53.55], [13.40, 52.52]]}
    for _ in range(2):
        equal(sorted(names(collection.find({"at": {"$geoWithin": {"$geometry": germany}}}))), ["Berlin", "Hamburg"])
        equal(sorted(names(collection.find({"at": {"$geoWithin": {"$geometry": pacific}}}))), ["Apia", "Suva"])
        equal(sorted(names(collection.find({"at": {"$geoIntersects": {"$geometry": line}}}))), ["Berlin", "Hamburg"])
        circle = {"$geoWithin": {"$centerSphere": [[13.4, 52.5], 300 / 6378.1]}}
        equal(sorted(names(collection.find({"at": circle}))), ["Berlin", "Hamburg"])
        equal(collection.count_documents({"at": circle}), 2)
        box = {"$geoWithin": {"$box": [[10, 40], [20, 60]]}}
        equal(sorted(names(collection.find({"at": box}))), ["Berlin", "Vienna"])
        equal(collection.create_index([("at", GEOSPHERE)]), "at_2dsphere")
    plan = collection.find({"at": {"$geoWithin": {"$geometry": germany}}}).explain()
    assert "IXSCAN" in str(plan), plan
    listed = {index["name"]: index for index in collection.list_indexes()}
    equal(listed["at_2dsphere"]["2dsphereIndexVersion"], 3)
    validated = collection.database.validate_collection("areas", full=True)
    equal((validated["valid"], validated["keysPerIndex"]["at_2dsphere"]), (True, 5))


@test
def near_gives_the_nearest_first(client):
    collection = cities(client, "near")
    here = {"$near": {"$geometry": point(13, 53)}}
    equal(raises(OperationFailure, list, collection.find({"at": here})).code, 291)
    collection.create_index([("at", GEOSPHERE)])
    equal(names(collection.find({"at": here})), ["Berlin", "Hamburg", "Vienna", "Apia", "Suva"])
    equal(names(collection.find({"at": here}).limit(2)), ["Berlin", "Hamburg"])
    equal(names(collection.find({"at": here}).sort("_id", 1)), ["Apia", "Berlin", "Hamburg", "Suva", "Vienna"])
    between = {"$nearSphere": {"$geometry": point(13, 53), "$minDistance": 150e3, "$maxDistance": 700e3}}
    equal(names(collection.find({"at": between})), ["Hamburg", "Vienna"])
    radians = {"$nearSphere": [13, 53], "$maxDistance": 700 / 6378.1}
    equal(names(collection.find({"at": radians})), ["Berlin", "Hamburg", "Vienna"])
    assert "GEO_NEAR_2DSPHERE" in str(collection.find({"at": here}).explain())
    equal(raises(OperationFailure, collection.count_documents, {"at": here}).code, 5626500)
    equal(raises(OperationFailure, list, collection.find({"$or": [{"at": here}, {"a": 1}]})).code, 2)
    # Over the antimeridian.
    fiji = {"$near": {"$geometry": point(180, -17), "$maxDistance": 2e6}}
    equal(names(collection.find({"at": fiji})), ["Suva", "Apia"])
    meta = {"far": {"$meta": "geoNearDistance"}, "point": {"$meta": "geoNearPoint"}}
    found = collection.find_one({"at": here}, meta)
    assert 59e3 < found["far"] < 61e3 and found["point"] == point(13.40, 52.52), found
    equal(raises(OperationFailure, list, collection.find({}, meta)).code, 40218)
    changed = collection.update_many({"at": between}, {"$set": {"near": True}})
    equal(changed.modified_count, 2)


@test
def geo_near_tells_distances(client):
    collection = cities(client, "geonear")
    collection.create_index([("at", GEOSPHERE)])
    stage = {"near": point(13.4, 52.52), "distanceField": "far", "spherical": True, "maxDistance": 600e3}
    found = list(collection.aggregate([{"$geoNear": stage}]))
    equal(names(found), ["Berlin", "Hamburg", "Vienna"])
    assert found[0]["far"] < 1 and 250e3 < found[1]["far"] < 260e3, found
    stage |= {"distanceMultiplier": 0.001, "includeLocs": "where", "query": {"_id": {"$ne": "Berlin"}}}
    found = list(collection.aggregate([{"$geoNear": stage}, {"$match": {"far": {"$lt": 300}}}]))
    equal(names(found), ["Hamburg"])
    equal(found[0]["where"], point(9.99, 53.55))
    shown = {"$set": {"again": {"$meta": "geoNearDistance"}}}
    assert all(doc["again"] > 1 for doc in collection.aggregate([{"$geoNear": stage}, shown]))
    later = [{"$match": {}}, {"$geoNear": stage}]
    equal(raises(OperationFailure, collection.aggregate, later).code, 40602)
    collection.create_index([("other", GEOSPHERE)])
    equal(raises(OperationFailure, collection.aggregate, [{"$geoNear": stage}]).code, 27)
    equal(names(collection.aggregate([{"$geoNear": stage | {"key": "at"}}])), ["Hamburg", "Vienna"])


@test
def pairs_in_the_plane(client):
    collection = fresh(client, "geo").plane
    equal(collection.create_index([("at", GEO2D), ("kind", 1)], min=-1000, max=1000), "at_2d_kind_1")
    collection.insert_many([{"_id": n, "at": [n, n * 2], "kind": n % 2} for n in range(100)])
    equal(names(collection.find({"at": {"$near": [10.2, 20.2]}}).limit(3)), [10, 11, 9])
    equal(names(collection.find({"at": {"$near": [0, 0], "$maxDistance": 5}, "kind": 1})), [1])
    equal(collection.count_documents({"at": {"$geoWithin": {"$center": [[0, 0], 5]}}}), 3)
    equal(collection.count_documents({"at": {"$within": {"$polygon": [[0, 0], [0, 10], [10, 10]]}}}), 6)
    equal(raises(WriteError, collection.insert_one, {"at": [2000, 0]}).code, 13027)
    equal(collection.insert_one({"_id": "many", "at": [[500, 500], [-500, -500]]}).inserted_id, "many")
    equal(names(collection.find({"at": {"$near": [-500, -499]}}).limit(1)), ["many"])
    equal(raises(OperationFailure, collection.create_index, [("a", 1), ("b", GEO2D)]).code, 16801)


@test
def what_is_no_place_is_refused_by_the_index(client):
    collection = fresh(client, "geo").wrong
    collection.create_index([("at", GEOSPHERE)])
    for wrong, words in [
        (point(200, 0), "longitude/latitude is out of bounds, lng: 200 lat: 0"),
        ([200, 0], "can't project geometry into spherical CRS"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, 2], [2, 3]]]}, "Loop is not closed"),
        ({"type": "Square", "coordinates": []}, "unknown GeoJSON type"),
        ("here", "geo element must be an array or object"),
    ]:
        error = raises(WriteError, collection.insert_one, {"at": wrong})
        equal(error.code, 16755)
        assert "Can't extract geo keys" in str(error) and words in str(error), error
    collection.insert_many([{}, {"at": None}, {"at": []}])
    equal(collection.count_documents({}), 3)
    other = collection.database.other
    other.insert_one({"_id": 42, "at": {"type": "Polygon", "coordinates": [[[0, 0], [0, 1], [1, 1], [-2, -1], [0, 0]]]}})
    error = raises(OperationFailure, other.create_index, [("at", GEOSPHERE)])
    equal(error.code, 16755)
    assert "42" in str(error), error

#!/usr/bin/env python3
"""47 steps through the SDK, one after the other: driver.py ENDPOINT [STEP ...] prints OK or FAIL for each."""
import os, signal, subprocess, sys, base64, datetime, warnings
warnings.simplefilter('ignore')
from azure.cosmos import CosmosClient, PartitionKey, exceptions
from azure.core import MatchConditions
EP=sys.argv[1]; only=sys.argv[2:] 
KEY="C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
SPLIT_CMD=os.environ['SPLIT_CMD']  # a shell command with {db} {coll} {range}
def split(path):
    db,coll,r=path.split('/'); return subprocess.check_output(SPLIT_CMD.format(db=db,coll=coll,range=r),shell=True,text=True)
def onalarm(*a): raise TimeoutError('step timed out (SDK looped)')
signal.signal(signal.SIGALRM,onalarm)
R={}
def step(name):
    def deco(f):
        if only and name not in only and name not in('client','create_database_if_not_exists','create_container_if_not_exists'): return f
        signal.alarm(15)
        try:
            r=f(); print('OK  ',name,'->',str(r)[:300]); R[name]=r
        except BaseException as e:
            print('FAIL',name,'->',type(e).__name__,str(e)[:300].replace('\n',' | '))
        finally: signal.alarm(0)
        return f
    return deco
g=globals()
@step('client')
def _(): g['c']=CosmosClient(EP,KEY,connection_verify=False); return 'ok'
@step('create_database_if_not_exists')
def _(): g['db']=c.create_database_if_not_exists('db1'); return db.id
@step('create_container_if_not_exists')
def _(): g['ct']=db.create_container_if_not_exists('c1',partition_key=PartitionKey(path='/pk'),offer_throughput=400); return ct.read().get('_rid')
@step('create_container_avad')
def _():
    g['ct2']=db.create_container_if_not_exists('cavad',partition_key=PartitionKey(path='/pk'))
    return 'ok'
@step('create_container_hpk')
def _(): g['ct3']=db.create_container_if_not_exists('chpk',partition_key=PartitionKey(path=['/t','/u'],kind='MultiHash')); return ct3.read()['partitionKey']
@step('create_item')
def _(): g['it']=ct.create_item({'id':'1','pk':'a','v':1}); return dict(it)
@step('create_item_more')
def _():
    for i in range(2,9): ct.create_item({'id':str(i),'pk':'abcdefgh'[i%8],'v':i})
    return 'ok'
@step('create_conflict')
def _():
    try: ct.create_item({'id':'1','pk':'a'})
    except exceptions.CosmosResourceExistsError as e: return '409 '+str(e.sub_status)
@step('upsert_item')
def _(): return dict(ct.upsert_item({'id':'1','pk':'a','v':2}))
@step('read_item')
def _(): g['it']=ct.read_item('1',partition_key='a'); return it['_etag']
@step('read_item_404')
def _():
    try: ct.read_item('nope',partition_key='a')
    except exceptions.CosmosResourceNotFoundError as e: return '404 sub=%s'%e.sub_status
@step('read_item_if_none_match')
def _(): return ct.read_item('1',partition_key='a',etag=it['_etag'],match_condition=MatchConditions.IfModified)
@step('replace_if_match_ok')
def _(): d=dict(it); d['v']=3; r=ct.replace_item('1',d,etag=it['_etag'],match_condition=MatchConditions.IfNotModified); return r['_etag']
@step('replace_if_match_stale')
def _():
    try: ct.replace_item('1',dict(it),etag=it['_etag'],match_condition=MatchConditions.IfNotModified)
    except exceptions.CosmosAccessConditionFailedError as e: return '412'
@step('patch_item')
def _(): return dict(ct.patch_item('1',partition_key='a',patch_operations=[{'op':'add','path':'/n','value':5},{'op':'incr','path':'/v','value':10},{'op':'remove','path':'/n'}]))
@step('patch_item_cond')
def _(): return dict(ct.patch_item('1',partition_key='a',patch_operations=[{'op':'set','path':'/n','value':6}],filter_predicate='FROM c WHERE c.v = 13'))
@step('delete_item')
def _(): return ct.delete_item('8',partition_key='a')
@step('batch')
def _(): return ct.execute_item_batch([('create',({'id':'b1','pk':'a'},)),('upsert',({'id':'b2','pk':'a'},)),('read',('b1',)),('delete',('b2',))],partition_key='a')
@step('query_single_partition')
def _(): return [x['id'] for x in ct.query_items('SELECT * FROM c WHERE c.v > @v',parameters=[{'name':'@v','value':1}],partition_key='a')]
@step('query_cross_partition')
def _(): return [x['id'] for x in ct.query_items('SELECT * FROM c WHERE c.v > @v',parameters=[{'name':'@v','value':1}],enable_cross_partition_query=True)]
@step('query_cross_partition_order_by')
def _(): return [x['id'] for x in ct.query_items('SELECT * FROM c ORDER BY c.v DESC',enable_cross_partition_query=True)]
@step('query_count')
def _(): return list(ct.query_items('SELECT VALUE COUNT(1) FROM c',enable_cross_partition_query=True))
@step('query_feed_range')
def _(): fr=list(ct.read_feed_ranges())[0]; return [x['id'] for x in ct.query_items('SELECT * FROM c',feed_range=fr)]
@step('read_all_items')
def _(): return [x['id'] for x in ct.read_all_items(max_item_count=3)]
@step('list_databases')
def _(): return [x['id'] for x in c.list_databases()]
@step('list_containers')
def _(): return [x['id'] for x in db.list_containers()]
@step('query_containers')
def _(): return [x['id'] for x in db.query_containers('SELECT * FROM r WHERE r.id="c1"')]
@step('read_feed_ranges')
def _(): return list(ct.read_feed_ranges())
@step('get_throughput')
def _(): return ct.get_throughput().offer_throughput
def pages(it):
    out=[]
    for p in it.by_page(): out.append([ (x.get('id') or x) for x in p])
    return out
def tok(): 
    e=ct.client_connection.last_response_headers['etag']
    try: return base64.b64decode(e).decode()
    except Exception: return e
@step('cf_beginning')
def _():
    r=pages(ct.query_items_change_feed(start_time='Beginning',max_item_count=3)); g['cont']=ct.client_connection.last_response_headers['etag']; return r,tok()
@step('cf_now')
def _(): r=pages(ct.query_items_change_feed(start_time='Now')); g['cont2']=ct.client_connection.last_response_headers['etag']; return r,tok()
@step('cf_continuation_after_now')
def _():
    ct.upsert_item({'id':'n1','pk':'b','v':100}); ct.upsert_item({'id':'n2','pk':'c','v':101})
    return pages(ct.query_items_change_feed(continuation=cont2)),tok()
@step('cf_point_in_time')
def _(): return pages(ct.query_items_change_feed(start_time=datetime.datetime.now(datetime.timezone.utc)-datetime.timedelta(hours=1))),tok()
@step('cf_continuation')
def _(): return pages(ct.query_items_change_feed(continuation=cont)),tok()
@step('cf_partition_key')
def _(): return pages(ct.query_items_change_feed(partition_key='a',start_time='Beginning')),tok()
@step('cf_feed_range')
def _(): return pages(ct.query_items_change_feed(feed_range=list(ct.read_feed_ranges())[0],start_time='Beginning')),tok()
@step('cf_pkrangeid_legacy')
def _(): return pages(ct.query_items_change_feed(partition_key_range_id='0',is_start_from_beginning=True)),tok()
@step('cf_avad_now')
def _(): r=pages(ct.query_items_change_feed(mode='AllVersionsAndDeletes')); g['cont3']=ct.client_connection.last_response_headers['etag']; return r,tok()
@step('cf_avad_continuation')
def _():
    ct.create_item({'id':'z1','pk':'a','v':1}); ct.replace_item('z1',{'id':'z1','pk':'a','v':2}); ct.delete_item('z1',partition_key='a')
    return pages(ct.query_items_change_feed(continuation=cont3)),tok()
@step('cf_avad_partition_key')
def _(): return pages(ct.query_items_change_feed(mode='AllVersionsAndDeletes',partition_key='a')),tok()
@step('hpk_create_read')
def _():
    ct3.create_item({'id':'h1','t':'T','u':'U'}); return ct3.read_item('h1',partition_key=['T','U'])['id']
@step('hpk_prefix_query')
def _(): return [x['id'] for x in ct3.query_items('SELECT * FROM c',partition_key=['T'])]
@step('hpk_prefix_cf')
def _(): return pages(ct3.query_items_change_feed(partition_key=['T'],start_time='Beginning'))
@step('split_then_continue')
def _():
    print('      split:',split('db1/c1/0'))
    ct.upsert_item({'id':'s1','pk':'a','v':100}); ct.upsert_item({'id':'s2','pk':'c','v':101})
    return pages(ct.query_items_change_feed(continuation=cont2)),tok()
@step('split_point_ops')
def _(): return ct.read_item('s1',partition_key='a')['id'],[x['id'] for x in ct.query_items('SELECT * FROM c',enable_cross_partition_query=True)]
@step('split_feed_ranges_stale_cache')
def _(): return list(ct.read_feed_ranges())
@step('delete_container')
def _(): return db.delete_container('cavad')

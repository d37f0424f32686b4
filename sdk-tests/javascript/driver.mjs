// 43 steps through the SDK, one after the other: driver.mjs ENDPOINT [STEP ...] prints OK or FAIL for each.
import * as cosmos from "@azure/cosmos";
const { CosmosClient, ChangeFeedStartFrom, ChangeFeedMode, ChangeFeedRetentionTimeSpan, PartitionKeyKind, PartitionKeyDefinitionVersion } = cosmos;
import { execSync } from "node:child_process";
const EP=process.argv[2]; const only=process.argv.slice(3);
const KEY="C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
const SPLIT_CMD=process.env.SPLIT_CMD; // a shell command with {db} {coll} {range}
const split=async(db,coll,range)=>execSync(SPLIT_CMD.replace('{db}',db).replace('{coll}',coll).replace('{range}',range)).toString();
async function step(n,f){ if(only.length&&!only.includes(n)&&!/^(client|create_d|create_container)/.test(n))return;
 try{ const r=await Promise.race([f(),new Promise((_,j)=>setTimeout(()=>j(new Error('step timed out')),15000))]); console.log('OK  ',n,'->',(JSON.stringify(r)||'').slice(0,420)); }
 catch(e){ console.log('FAIL',n,'->',e.code,String(e.message||e).slice(0,300).replace(/\n/g,' | ')); } }
let client,db,ct,ct3,it,cont,cont2,cont3;
await step('client',async()=>{client=new CosmosClient({endpoint:EP,key:KEY});return 'ok'});
await step('create_database_if_not_exists',async()=>{({database:db}=await client.databases.createIfNotExists({id:'db1'}));return db.id});
await step('create_container_if_not_exists',async()=>{({container:ct}=await db.containers.createIfNotExists({id:'c1',partitionKey:{paths:['/pk'],kind:'Hash',version:2},throughput:400}));return ct.id});
await step('create_container_avad',async()=>{const {resource}=await db.containers.createIfNotExists({id:'cavad',partitionKey:{paths:['/pk'],kind:'Hash',version:2},changeFeedPolicy:new cosmos.ChangeFeedPolicy(ChangeFeedRetentionTimeSpan.fromMinutes(10))});return resource.changeFeedPolicy});
await step('create_container_hpk',async()=>{({container:ct3}=await db.containers.createIfNotExists({id:'chpk',partitionKey:{paths:['/t','/u'],kind:PartitionKeyKind.MultiHash,version:PartitionKeyDefinitionVersion.V2}}));return 'ok'});
await step('create_item',async()=>{({resource:it}=await ct.items.create({id:'1',pk:'a',v:1}));return it});
await step('create_item_more',async()=>{for(let i=2;i<9;i++)await ct.items.create({id:String(i),pk:'abcdefgh'[i%8],v:i});return 'ok'});
await step('create_conflict',async()=>{try{await ct.items.create({id:'1',pk:'a'})}catch(e){return [e.code,e.substatus]}});
await step('upsert_item',async()=>(await ct.items.upsert({id:'1',pk:'a',v:2})).resource);
await step('read_item',async()=>{({resource:it}=await ct.item('1','a').read());return it._etag});
await step('read_item_404',async()=>{const r=await ct.item('nope','a').read();return [r.statusCode,r.resource]});
await step('replace_if_match_ok',async()=>(await ct.item('1','a').replace({...it,v:3},{accessCondition:{type:'IfMatch',condition:it._etag}})).resource._etag);
await step('replace_if_match_stale',async()=>{try{await ct.item('1','a').replace({...it,v:3},{accessCondition:{type:'IfMatch',condition:it._etag}})}catch(e){return e.code}});
await step('patch_item',async()=>(await ct.item('1','a').patch({operations:[{op:'incr',path:'/v',value:10},{op:'set',path:'/n',value:1}],condition:'from c where c.v > 0'})).resource);
await step('delete_item',async()=>(await ct.item('8','a').delete()).statusCode);
await step('batch',async()=>(await ct.items.batch([{operationType:'Create',resourceBody:{id:'b1',pk:'a'}},{operationType:'Upsert',resourceBody:{id:'b2',pk:'a'}},{operationType:'Read',id:'b1'},{operationType:'Delete',id:'b2'}],'a')).result.map(x=>x.statusCode));
await step('bulk',async()=>(await ct.items.executeBulkOperations([{operationType:'Create',partitionKey:'b',resourceBody:{id:'k1',pk:'b'}},{operationType:'Upsert',partitionKey:'c',resourceBody:{id:'k2',pk:'c'}}])).map(x=>x.response?.statusCode||x.error));
await step('query_single_partition',async()=>(await ct.items.query({query:'SELECT * FROM c WHERE c.v > @v',parameters:[{name:'@v',value:1}]},{partitionKey:'a'}).fetchAll()).resources.map(x=>x.id));
await step('query_cross_partition',async()=>(await ct.items.query({query:'SELECT * FROM c WHERE c.v > @v',parameters:[{name:'@v',value:1}]}).fetchAll()).resources.map(x=>x.id));
await step('query_cross_partition_order_by',async()=>(await ct.items.query('SELECT * FROM c ORDER BY c.v DESC').fetchAll()).resources.map(x=>x.id));
await step('query_count',async()=>(await ct.items.query('SELECT VALUE COUNT(1) FROM c').fetchAll()).resources);
await step('read_all_items',async()=>(await ct.items.readAll({maxItemCount:3}).fetchAll()).resources.map(x=>x.id));
await step('list_databases',async()=>(await client.databases.readAll().fetchAll()).resources.map(x=>x.id));
await step('query_containers',async()=>(await db.containers.query('SELECT * FROM r').fetchAll()).resources.map(x=>x.id));
await step('read_feed_ranges',async()=>ct.getFeedRanges());
await step('read_pkranges',async()=>(await ct.readPartitionKeyRanges().fetchAll()).resources.map(x=>[x.id,x.minInclusive,x.maxExclusive]));
await step('read_offer',async()=>(await ct.readOffer()).resource?.content);
async function drain(itr,max=12){const out=[];let last;for(let i=0;i<max;i++){const r=await itr.readNext();last=r.continuationToken;if(r.statusCode===304){out.push(304);break}out.push(r.result.map(x=>x.id||(x.metadata?[x.metadata.operationType,x.metadata.lsn,x.current&&x.current.v,x.previous&&x.previous.v]:x)))}return [out,last]}
await step('cf_beginning',async()=>{const r=await drain(ct.items.getChangeFeedIterator({changeFeedStartFrom:ChangeFeedStartFrom.Beginning(),maxItemCount:3}));cont=r[1];return r});
await step('cf_now',async()=>{const r=await drain(ct.items.getChangeFeedIterator({changeFeedStartFrom:ChangeFeedStartFrom.Now()}));cont2=r[1];return r});
await step('cf_continuation_after_now',async()=>{await ct.items.upsert({id:'n1',pk:'b',v:100});await ct.items.upsert({id:'n2',pk:'c',v:101});return drain(ct.items.getChangeFeedIterator({changeFeedStartFrom:ChangeFeedStartFrom.Continuation(cont2)}))});
await step('cf_point_in_time',async()=>drain(ct.items.getChangeFeedIterator({changeFeedStartFrom:ChangeFeedStartFrom.Time(new Date(Date.now()-3600e3))})));
await step('cf_partition_key',async()=>drain(ct.items.getChangeFeedIterator({changeFeedStartFrom:ChangeFeedStartFrom.Beginning('a')})));
await step('cf_feed_range',async()=>drain(ct.items.getChangeFeedIterator({changeFeedStartFrom:ChangeFeedStartFrom.Beginning((await ct.getFeedRanges())[0])})));
await step('cf_legacy_changefeed',async()=>{const i=ct.items.changeFeed('a',{startFromBeginning:true});const r=await i.fetchNext();return [r.statusCode,r.result.map(x=>x.id),r.etag]});
await step('cf_avad_now',async()=>{const r=await drain(ct.items.getChangeFeedIterator({changeFeedMode:ChangeFeedMode.AllVersionsAndDeletes,changeFeedStartFrom:ChangeFeedStartFrom.Now()}));cont3=r[1];return r});
await step('cf_avad_continuation',async()=>{await ct.items.create({id:'z1',pk:'a',v:1});await ct.item('z1','a').replace({id:'z1',pk:'a',v:2});await ct.item('z1','a').delete();return drain(ct.items.getChangeFeedIterator({changeFeedMode:ChangeFeedMode.AllVersionsAndDeletes,changeFeedStartFrom:ChangeFeedStartFrom.Continuation(cont3)}))});
await step('cf_avad_partition_key',async()=>drain(ct.items.getChangeFeedIterator({changeFeedMode:ChangeFeedMode.AllVersionsAndDeletes,changeFeedStartFrom:ChangeFeedStartFrom.Now('a')})));
await step('hpk_create_read',async()=>{await ct3.items.create({id:'h1',t:'T',u:'U'});return (await ct3.item('h1',['T','U']).read()).resource.id});
await step('hpk_prefix_cf',async()=>drain(ct3.items.getChangeFeedIterator({changeFeedStartFrom:ChangeFeedStartFrom.Beginning(['T'])})));
await step('split_then_continue',async()=>{console.log('      ',await split('db1','c1','0'));await ct.items.upsert({id:'s1',pk:'a',v:100});await ct.items.upsert({id:'s2',pk:'c',v:101});return drain(ct.items.getChangeFeedIterator({changeFeedStartFrom:ChangeFeedStartFrom.Continuation(cont2)}))});
await step('split_point_ops',async()=>[(await ct.item('s1','a').read()).resource.id,(await ct.items.query('SELECT * FROM c').fetchAll()).resources.map(x=>x.id)]);
await step('split_feed_ranges',async()=>ct.getFeedRanges());
await step('delete_container',async()=>(await db.container('cavad').delete()).statusCode);
client.dispose?.();
process.exit(0);
